package supervisor

import (
	"database/sql"
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

// exec changes the server's database from outside.
func (b *bed) exec(statement string) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.dir, ".local/share/opencode/opencode.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		b.t.Fatal(err)
	}
}
