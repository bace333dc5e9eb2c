package supervisor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// Who stops the service is kept from it while what is unfinished can't be parked, and
// a service manager, which can't be kept, hears that it was left.
func TestNothingUnfinishedIsLeftSilently(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	if err := b.client.MayLeave(t.Context()); err != nil {
		t.Errorf("with all in order: %v", err)
	}
	b.exec("ALTER TABLE session_v2 RENAME TO elsewhere")
	signal(t, st.Server.PID, platform.Kill)
	b.phase(Blocked)
	if err := b.client.MayLeave(t.Context()); code(err) != control.CodeRefused || !strings.Contains(err.Error(), "can't be parked") {
		t.Errorf("while a lock is kept: %v", err)
	}
	if _, err := b.client.Leave(t.Context()); code(err) != control.CodeRefused {
		t.Errorf("left: %v", err)
	}
	b.end()
	b.end = nil
	select {
	case err := <-b.ended:
		if !errors.Is(err, ErrUnfinished) {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the supervisor does not end")
	}
	b.client.Close()
	b.exec("ALTER TABLE elsewhere RENAME TO session_v2")
}

func TestAServerWhoseWorkCantBeWrittenDownIsNotLeft(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	moved := b.o.Paths.Ledger + ".moved"
	if err := os.Rename(b.o.Paths.Ledger, moved); err != nil {
		t.Fatal(err)
	}
	if err := b.client.MayLeave(t.Context()); code(err) != control.CodeRefused || !strings.Contains(err.Error(), "could not be written down") {
		t.Errorf("without a ledger: %v", err)
	}
	if err := os.Rename(moved, b.o.Paths.Ledger); err != nil {
		t.Fatal(err)
	}
	if err := b.client.MayLeave(t.Context()); err != nil {
		t.Errorf("with it again: %v", err)
	}
}

// Who is told to end before it has adopted the server that was left stops it in order
// all the same: what is at work is suspended, and not found dead.
func TestALeaveBeforeTheAdoptionIsInOrder(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	server := b.phase(Running).Server.PID
	id := b.prompt("[[slow n=1200 ms=50]]")
	b.atWork(id)
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	asked := make(chan struct{}, 1)
	b.o.LoginEnvironment = true
	b.o.askLogin = func(ctx context.Context, given []string) ([]string, error) {
		asked <- struct{}{}
		<-ctx.Done() // the launch is held up until it is cancelled
		return given, ctx.Err()
	}
	b.start()
	<-asked
	b.phase(Starting)
	b.stop()
	if pid, alive := LivingServer(b.o.Paths); alive {
		t.Fatalf("pid %d lives", pid)
	}
	if _, err := platform.Identify(server); !errors.Is(err, platform.ErrNoProcess) {
		t.Errorf("the server lives: %v", err)
	}
	b.o.LoginEnvironment, b.o.askLogin = false, nil
	b.start()
	b.phase(Running)
	pending, err := b.client.Pending(t.Context())
	if err != nil || len(pending.Pending) != 1 || pending.Pending[0].ID != id || pending.Pending[0].Cause != restart.CauseShutdown {
		t.Errorf("%+v, %v", pending, err)
	}
}
