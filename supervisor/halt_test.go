package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"intermission/platform"
	"intermission/supervisor/control"
)

// A server is not stopped when what it works on can't be written down: the one who
// wants it stopped hears so, and can have it once that is mended.
func TestAStopThatCannotBeSafeIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	first := b.phase(Running)
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	away := b.o.Paths.Ledger + ".away"
	if err := os.Rename(b.o.Paths.Ledger, away); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"stop", "restart"} {
		act := map[string]func(context.Context) (control.Status, error){"stop": b.client.StopServer, "restart": b.client.RestartServer}[name]
		_, err := act(t.Context())
		if err == nil || !strings.Contains(err.Error(), "it was not stopped") || !strings.Contains(err.Error(), "try again") {
			t.Errorf("%s: %v", name, err)
		}
		if st := b.phase(Running); st.Server.Incarnation != first.Server.Incarnation || !strings.Contains(st.Server.Reason, "was not stopped") || st.Server.Desired != "running" {
			t.Errorf("%s: %+v", name, st.Server)
		}
		b.atWork(id)
	}
	if err := os.Rename(away, b.o.Paths.Ledger); err != nil {
		t.Fatal(err)
	}
	// Its end is still heard of, by the act that was given up.
	signal(t, first.Server.PID, platform.Kill)
	b.waits(id)
	b.status("another one", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation && st.Server.Reason == ""
	})
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Error(err)
	}
	if st := b.phase(Stopped); st.Server.Reason != "" || st.Sessions.Pending != 1 {
		t.Errorf("%+v", st)
	}
}

func TestProveRoom(t *testing.T) {
	dir := t.TempDir()
	s := &supervisor{Options: Options{Paths: platform.Paths{Ledger: filepath.Join(dir, "ledger.db")}}}
	if err := s.proveRoom(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	s.Paths.Ledger = filepath.Join(dir, "missing", "ledger.db")
	if err := s.proveRoom(); err == nil {
		t.Error("room where nothing can be written")
	}
}
