package supervisor

import (
	"context"
	"slices"
	"testing"

	"intermission/restart"
)

// A server whose supervisor is gone is stopped as if that were there, and the wish
// isn't touched.
func TestStopLeft(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	id := b.prompt("[[slow n=1200 ms=50]]")
	b.atWork(id)
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	if _, alive := LivingServer(b.o.Paths); !alive {
		t.Fatal("nothing was left")
	}
	o := b.o
	o.Environ = append(slices.Clone(o.Environ), "OF_A_TERMINAL=1")
	if err := StopLeft(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if pid, alive := LivingServer(b.o.Paths); alive {
		t.Errorf("pid %d lives", pid)
	}
	if process := recallEnvironment(b.o.Paths.State).Process; len(process) == 0 || slices.Contains(process, "OF_A_TERMINAL=1") {
		t.Errorf("the supervisor's environment is remembered as %d variables, with the stop's", len(process))
	}
	b.start()
	b.phase(Running) // as was wished
	pending, err := b.client.Pending(t.Context())
	if err != nil || len(pending.Pending) != 1 || pending.Pending[0].ID != id || pending.Pending[0].Cause != restart.CauseShutdown {
		t.Errorf("%+v, %v", pending, err)
	}
	if st, err := b.client.Status(t.Context()); err != nil || len(st.Sessions.Active) > 0 {
		t.Errorf("at work: %+v, %v", st.Sessions.Active, err)
	}
}

// With nothing left, nothing is started.
func TestStopLeftOfNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	if err := StopLeft(context.Background(), b.o); err != nil {
		t.Fatal(err)
	}
	if pid, alive := LivingServer(b.o.Paths); alive {
		t.Errorf("pid %d was started", pid)
	}
}
