package opencode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/restart"
)

func TestDatabasePath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version string
		env           map[string]string
		want          string // "" for an error
	}{
		{"home", "1.18.33", map[string]string{"HOME": "/home/u"}, "/home/u/.local/share/opencode/opencode.db"},
		{"plain v2", "2.2.0", map[string]string{"HOME": "/home/u"}, "/home/u/.local/share/opencode/opencode.db"},
		{"xdg", "2.2.0", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "/data"}, "/data/opencode/opencode.db"},
		{"channel", "0.0.0-next-202607170015", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/opencode/opencode-next.db"},
		{"beta shares", "0.0.0-beta-202607170015", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/opencode/opencode.db"},
		{"prod shares", "0.0.0-prod-1", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/opencode/opencode.db"},
		{"channel with dashes and slash", "0.0.0-fix/the-bug-42", map[string]string{"XDG_DATA_HOME": "/data"}, "/data/opencode/opencode-fix-the-bug.db"},
		{"channels off", "0.0.0-next-1", map[string]string{"XDG_DATA_HOME": "/data", "OPENCODE_DISABLE_CHANNEL_DB": "1"}, "/data/opencode/opencode.db"},
		{"absolute", "2.2.0", map[string]string{"OPENCODE_DB": "/x/../y.db"}, "/y.db"},
		{"relative to data", "0.0.0-next-1", map[string]string{"XDG_DATA_HOME": "/data", "OPENCODE_DB": "mine.db"}, "/data/opencode/mine.db"},
		{"memory", "2.2.0", map[string]string{"HOME": "/home/u", "OPENCODE_DB": ":memory:"}, ""},
		{"no home", "2.2.0", nil, ""},
		{"relative data home", "2.2.0", map[string]string{"HOME": "/home/u", "XDG_DATA_HOME": "data"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := DatabasePath(func(name string) string { return c.env[name] }, c.version)
			if got != filepath.FromSlash(c.want) || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestAbsentDatabaseIsOpenedWhenItAppears(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "opencode.db")
	d, err := OpenDatabase(path, V2)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims)+len(sweep.Jobs) != 0 || d.Kind() != KindAbsent {
		t.Fatalf("absent: %v, %v, kind %s", sweep, err, d.Kind())
	}
	if err := d.Clear(t.Context(), restart.Sweep{}); err != nil {
		t.Error("clearing nothing:", err)
	}
	if err := d.Clear(t.Context(), restart.Sweep{Claims: []restart.Claim{{Session: "ses_1"}}}); !errors.Is(err, restart.ErrChanged) {
		t.Error("clearing what isn't there:", err)
	}
	fates, err := d.Fates(t.Context(), []string{"ses_1"})
	if err != nil || fates["ses_1"].Outcome != restart.OutcomeGone {
		t.Errorf("fates: %v, %v", fates, err)
	}
	if changed, err := d.Changed(t.Context()); changed || err != nil {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 0 {
		t.Fatalf("we created %v", files)
	}

	empty := newServerAt(t, KindAbsent, path) // created, no table yet
	empty.exec("PRAGMA user_version = 1")
	if kind := d.Kind(); kind != KindAbsent {
		t.Error("without a table it is", kind)
	}
	empty.exec(schemaOf(t, KindEarly))
	empty.kind = KindEarly
	empty.session("ses_1", "time_suspended = 7")
	sweep, err = d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 1 || d.Kind() != KindEarly {
		t.Errorf("appeared: %v, %v, kind %s", sweep, err, d.Kind())
	}
}

func TestReplacedDatabaseIsOpenedAnew(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly)
	d := s.open(V2)
	s.db.Close()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(s.path + suffix); err != nil && suffix == "" {
			t.Fatal(err)
		}
	}
	again := newServer(t, KindClaims)
	again.session("ses_1", "time_suspended = 7")
	again.db.Close() // the last to close leaves one file
	if err := os.Rename(again.path, s.path); err != nil {
		t.Fatal(err)
	}
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 1 || d.Kind() != KindClaims {
		t.Errorf("%v, %v, kind %s", sweep, err, d.Kind())
	}
}

func TestMigrationUnderUsIsNoticed(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly)
	s.session("ses_1", "time_suspended = 7")
	d := s.open(V2)
	s.exec(`ALTER TABLE session RENAME TO session_v2`)
	s.exec(`ALTER TABLE session_v2 RENAME COLUMN time_suspended TO execution_claimed_at`)
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 1 || sweep.Claims[0].ClaimedAt != 7 || d.Kind() != KindClaims {
		t.Errorf("%v, %v, kind %s", sweep, err, d.Kind())
	}
}

func TestPathWithOddCharacters(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b?mode=memory#c%41;&ü")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := newServerAt(t, KindEarly, filepath.Join(dir, "open code.db"))
	s.session("ses_1", "time_suspended = 7")
	d := s.open(V2)
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 1 {
		t.Fatalf("%v, %v", sweep, err)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.path); err != nil {
		t.Error(err)
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.session("ses_1", "")
	d := s.open(V2)
	check := func(when string, want bool) {
		t.Helper()
		if got, err := d.Changed(t.Context()); got != want || err != nil {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	check("first", true)
	check("nothing happened", false)
	s.exec(`UPDATE session_v2 SET time_suspended = 9`)
	check("server committed", true)
	check("nothing more", false)
	sweep, err := d.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check("we have read", false)
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	check("we have cleared", true)
}

func TestReadingBesideAWriter(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.session("ses_1", "time_suspended = 7")
	d := s.open(V2)
	release := holdLock(t, s.path)
	start := time.Now()
	if sweep, err := d.Sweep(t.Context()); err != nil || len(sweep.Claims) != 1 {
		t.Errorf("%v, %v", sweep, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("waited %v for the writer", took)
	}
	release()
	s.exec(`UPDATE session_v2 SET title = 'the server goes on'`)
}

// A killed server leaves its -wal and -shm behind: the first look, which can
// only read, must see what was committed and not what wasn't.
func TestReadingAfterAKill(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.session("ses_1", "time_suspended = 7")
	server, _ := startHolder(t, s.path) // has the file open, and a transaction
	s.db.Close()
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	if _, err := os.Stat(s.path + "-wal"); err != nil {
		t.Fatal("nothing to recover:", err)
	}
	d := s.open(V2)
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 1 {
		t.Fatalf("%v, %v", sweep, err)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Error(err)
	}
	if sweep, err := d.Sweep(t.Context()); err != nil || len(sweep.Claims) != 0 {
		t.Errorf("%v, %v", sweep, err)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "opencode.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("this is no database. ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"garbage": garbage, "a directory": t.TempDir()} {
		d, err := OpenDatabase(path, V2)
		if err == nil || !strings.Contains(err.Error(), "cannot read the server's database "+path) {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
	if _, err := OpenDatabase("relative.db", V2); err == nil {
		t.Error("a relative path was accepted")
	}
	if _, err := OpenDatabase(garbage, "v3"); err == nil {
		t.Error("an unknown generation was accepted")
	}
}

func TestClosedDatabaseSaysSo(t *testing.T) {
	t.Parallel()
	d := newServer(t, KindV1).open(V1)
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Sweep(t.Context()); err == nil {
		t.Error("no error")
	}
}
