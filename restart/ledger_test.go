package restart

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestTheJournalIsOnlyAddedTo(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	for _, q := range []string{"UPDATE journal SET what = 'shown'", "DELETE FROM journal", "REPLACE INTO journal SELECT * FROM journal"} {
		if _, err := b.Ledger.db.Exec(q); err == nil || !strings.Contains(err.Error(), "only ever added") {
			t.Errorf("%s: %v", q, err)
		}
	}
	b.journaled("ses_1", whatSuspended)
}

func TestTheLedgerIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // the directory's access list guards it there
	}
	b := bare(t)
	b.must(os.Chmod(b.path, 0o644))
	b.reopen()
	b.begin("inc1", begun)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(b.path + suffix)
		b.must(err)
		if suffix == "" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", info.Name(), info.Mode().Perm())
		}
	}
}

func TestOddPaths(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b%20#c&d.db")
	l, err := Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("it was written elsewhere: %v", err)
	}
}

func TestDurabilitySettings(t *testing.T) {
	t.Parallel()
	b := bare(t)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000"} {
		var got string
		b.must(b.Ledger.db.QueryRow("PRAGMA " + pragma).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
}

func TestFilesThatAreNoLedgerOfOursStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
		is   error
	}{
		"newer": {func(t *testing.T, path string) {
			l, err := Open(path, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.db.Exec("PRAGMA user_version = 999"); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}, "install the newer program again", ErrNewer},
		"foreign": {func(t *testing.T, path string) {
			db, err := sql.Open("sqlite", dataSource(path))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("CREATE TABLE session (id)"); err != nil {
				t.Fatal(err)
			}
		}, "another program", nil},
		"no database": {func(t *testing.T, path string) {
			write(t, path, []byte(strings.Repeat("no database at all\n", 100)))
		}, "to begin a new one and keep it", nil},
		"damaged": {func(t *testing.T, path string) {
			l, err := Open(path, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			var page int
			if err := l.db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = 'journal'").Scan(&page); err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := (page - 1) * 4096; i < page*4096; i++ {
				content[i] = 0xff
			}
			write(t, path, content)
		}, "it is damaged", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger.db")
			c.make(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(path, time.Now)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%v", err)
			}
			after, err := os.ReadFile(path)
			if err != nil || string(after) != string(before) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestALedgerThatCannotBeWrittenFailsClosed(t *testing.T) {
	t.Parallel()
	if _, err := Open(filepath.Join(t.TempDir(), "missing", "ledger.db"), time.Now); err == nil || !strings.Contains(err.Error(), "writable") {
		t.Errorf("missing directory: %v", err)
	}
	b := setup(t, claim("ses_1", 2000))
	_, err := b.Ledger.db.Exec("PRAGMA query_only = 1") // as a disk that became read-only; root isn't stopped by modes
	b.must(err)
	if _, err := b.Park(t.Context(), b.db, ParkOptions{Database: serverDB}); err == nil {
		t.Error("parked into a ledger that can't be written")
	}
	if b.db.cleared != 0 || len(b.db.claims) != 1 {
		t.Error("the database was cleared")
	}
	if err := b.Suspend(t.Context(), []string{"ses_1"}, 3000); err == nil {
		t.Error("suspended into a ledger that can't be written")
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.Suspend(t.Context(), []string{"ses_abc", "ses_abd", "ses_x", "ses_xy"}, 3000))
	b.park()
	_, err := b.Dismiss(t.Context(), "ses_abd", 0)
	b.must(err)
	for prefix, want := range map[string]string{"ses_abc": "ses_abc", "ses_ab": "ses_abc", "ses_abd": "ses_abd", "ses_x": "ses_x"} {
		if got, err := b.Resolve(t.Context(), prefix); err != nil || got != want {
			t.Errorf("%s: %q, %v", prefix, got, err)
		}
	}
	for _, prefix := range []string{"", "%", "ses%abc", "ses_a_", "*", "ses_q", "SES_ABC", "'"} {
		if got, err := b.Resolve(t.Context(), prefix); !errors.Is(err, ErrNotPending) {
			t.Errorf("%q: %q, %v", prefix, got, err)
		}
	}
	var ambiguous *AmbiguousError
	if _, err := b.Resolve(t.Context(), "ses_"); !errors.As(err, &ambiguous) || len(ambiguous.Candidates) != 3 {
		t.Errorf("%v", err)
	}
}
