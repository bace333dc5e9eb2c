//go:build unix

package platform

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestIdentify(t *testing.T) {
	t.Parallel()
	self := identityOfPID(t, os.Getpid())
	if self.PID != os.Getpid() || self.Start == "" || self.Boot == "" || !self.Alive() {
		t.Errorf("self is %+v, alive %t", self, self.Alive())
	}
	if again := identityOfPID(t, os.Getpid()); again != self {
		t.Errorf("%+v, then %+v", self, again)
	}
	b, err := json.Marshal(self)
	must(t, err)
	var back Identity
	must(t, json.Unmarshal(b, &back))
	if back != self || !strings.Contains(string(b), `"pid":`) {
		t.Errorf("%s came back as %+v", b, back)
	}
	for _, pid := range []int{0, -1, 1 << 30} {
		if _, err := Identify(pid); !errors.Is(err, ErrNoProcess) {
			t.Errorf("pid %d: %v", pid, err)
		}
	}
	for _, other := range []Identity{
		{},
		{PID: self.PID, Start: self.Start},
		{PID: self.PID, Start: "1", Boot: self.Boot},
		{PID: self.PID, Start: self.Start, Boot: "another"},
	} {
		if other.Alive() {
			t.Errorf("alive: %+v", other)
		}
	}
}

// zombie is a process that has ended and isn't reaped.
func zombie(t *testing.T) (Identity, *exec.Cmd) {
	t.Helper()
	cmd := roleCommand(exec.Command, "block")
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() })
	id := identityOfPID(t, cmd.Process.Pid)
	must(t, stdin.Close())
	eventually(t, "it ends", func() bool {
		_, ended, err := identify(id.PID)
		return err == nil && ended
	})
	return id, cmd
}

func TestAZombieDoesNotRun(t *testing.T) {
	t.Parallel()
	id, cmd := zombie(t)
	must(t, unix.Kill(id.PID, 0)) // its pid is still taken
	if _, err := Identify(id.PID); !errors.Is(err, ErrNoProcess) || id.Alive() {
		t.Errorf("Identify %v, alive %t", err, id.Alive())
	}
	if err := id.Signal(Kill); !errors.Is(err, ErrNoProcess) {
		t.Errorf("Signal: %v", err)
	}
	done, err := Watch(t.Context(), id)
	must(t, err)
	closedSoon(t, "the watch of a zombie ends", done)
	must(t, cmd.Wait())
}

func TestSignal(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "block")
	id := c.identity(t)
	for _, other := range []Identity{
		{PID: id.PID, Start: "1", Boot: id.Boot},
		{PID: id.PID, Start: id.Start, Boot: "earlier"},
		{PID: 0, Start: id.Start, Boot: id.Boot},
		{PID: -id.PID, Start: id.Start, Boot: id.Boot},
		{PID: 1 << 30, Start: id.Start, Boot: id.Boot},
	} {
		if err := other.Signal(Kill); !errors.Is(err, ErrNoProcess) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	checkError(t, id.Signal(Sig(9)), "unknown signal")
	if !id.Alive() {
		t.Fatal("the wrong identity was signalled")
	}
	must(t, id.Signal(Terminate))
	_ = c.cmd.Wait()
	if s := endSignal(c.cmd.ProcessState); s != "SIGTERM" {
		t.Errorf("ended by %q", s)
	}
	if err := id.Signal(Terminate); !errors.Is(err, ErrNoProcess) {
		t.Errorf("after its end: %v", err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "block")
	id := c.identity(t)
	done, err := Watch(t.Context(), id)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	given, err := Watch(ctx, id)
	must(t, err)
	cancel()
	other, err := Watch(t.Context(), Identity{PID: id.PID, Start: "1", Boot: id.Boot})
	must(t, err)
	closedSoon(t, "the watch of another identity ends", other)
	select {
	case <-done:
		t.Fatal("closed while it runs")
	default:
	}
	c.finish()
	closedSoon(t, "the watch ends", done)
	select {
	case <-given:
		t.Error("closed after its context had ended")
	default:
	}
	again, err := Watch(t.Context(), id)
	must(t, err)
	closedSoon(t, "a watch after the end ends", again)
}
