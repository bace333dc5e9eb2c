//go:build unix

package supervisor

import (
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
