package supervisor

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"intermission/platform"
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
