//go:build unix

package supervisor

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"intermission/platform"
)

func TestFrozenServerIsReplacedNeverDoubled(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Config.Server.StopTimeout = 4 * time.Second
	b.start()
	first := b.phase(Running)
	id, err := platform.Identify(first.Server.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(first.Server.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	st, err := b.client.RestartServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if id.Alive() || st.Server.Incarnation == first.Server.Incarnation {
		t.Errorf("the first one lives: %v; now %+v", id.Alive(), st.Server)
	}
}

// What held a stop up is named, and that the server was killed.
func TestWhatHoldsAStopUpIsNamed(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Config.Server.StopTimeout = 4 * time.Second
	b.start()
	st := b.phase(Running)
	id := b.prompt("[[shell sleep 300]]")
	b.atWork(id)
	if err := syscall.Kill(st.Server.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	st, err := b.client.StopServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := st.Server.Reason; !strings.Contains(r, id) || !strings.Contains(r, "processes ") || !strings.Contains(r, "killed") {
		t.Errorf("reason %q", r)
	}
}
