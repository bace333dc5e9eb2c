package supervisor

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"intermission/platform"
)

// TestAFailedParkKeepsEverybodyOut: what can't be parked must not be resumed by a
// server that somebody else starts.
func TestAFailedParkKeepsEverybodyOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	b.exec("ALTER TABLE session_v2 RENAME TO elsewhere")
	signal(t, st.Server.PID, platform.Kill)
	st = b.phase(Blocked)
	if !strings.Contains(st.Server.Reason, "no server can start meanwhile") {
		t.Errorf("reason %q", st.Server.Reason)
	}
	foreign, err := platform.Start(platform.Spec{Argv: b.o.Config.Server.Command, Env: append(b.o.Environ, asServer+"=1"), Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	if exit := foreign.Wait(); exit.Code != 0 {
		t.Errorf("a foreign server met no lock: %+v", exit)
	}
	b.exec("ALTER TABLE elsewhere RENAME TO session_v2")
	b.phase(Running)
}

func (b *bed) databasePath() string { return filepath.Join(b.dir, ".local/share/opencode/opencode.db") }

// exec changes the server's database from outside.
func (b *bed) exec(statement string) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.databasePath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		b.t.Fatal(err)
	}
}

// TestAStarterThatWinsTheLockFindsNothing: the kernel hands a lock to nobody, so
// another server can take it before the waiter does.
func TestAStarterThatWinsTheLockFindsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	claim(t, b.databasePath(), 1)
	// The foreign one has won: what it holds is what our waiter waits for. Replacing
	// the file makes that certain; the waiter still waits on the old one.
	lock := filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
	if err := os.Rename(lock, lock+".old"); err != nil {
		t.Fatal(err)
	}
	winner, err := platform.TryServerLock(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer winner.Unlock() //nolint:errcheck // the test's own
	signal(t, st.Server.PID, platform.Kill)
	b.until("the claim is parked", func() bool {
		p, err := b.client.Pending(t.Context())
		return err == nil && len(p.Pending) == 1
	}, func() any { return nil })
	db, err := sql.Open("sqlite", "file:"+b.databasePath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRow("SELECT count(*) FROM session_v2 WHERE time_suspended IS NOT NULL").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d claims are left for the winner, %v", left, err)
	}
}
