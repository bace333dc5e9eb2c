//go:build linux

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOpenIsNoConsent opens OpenCode's own interface on a suspended session: it is
// shown there, as it stood, and nothing executes, nor when it is left again.
func TestOpenIsNoConsent(t *testing.T) {
	t.Parallel()
	u := newUser(t, newV1)
	w := suspendOne(t, u)
	opened := func(when string, want int) {
		t.Helper()
		tty := u.inTerminal(t, program, "open", w.id)
		tty.wait(t)
		if code := tty.cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("open without %s ended with %d; it showed %q", when, code, tty.tail())
		}
	}
	opened("a supervisor", 3)
	u.up(t)
	requests := u.requests(t)
	u.wantPending(t, w)
	history := len(u.history(t, w.id))

	tty := u.inTerminal(t, program, "open", w.id[:len(w.id)-1])
	eventually(t, "the session in OpenCode's interface", func() error {
		if !tty.shows(w.marker) {
			return fmt.Errorf("it shows %q", tty.tail())
		}
		return nil
	})
	always(t, 3*time.Second, "no execution without consent", func() error {
		if n := u.requests(t); n != requests {
			return fmt.Errorf("%d requests reached the model", n-requests)
		}
		if busy, err := u.active(u.client(t), w.id, w.directory); busy || err != nil {
			return fmt.Errorf("active: %v, %w", busy, err)
		}
		return nil
	})
	u.wantPending(t, w)
	u.secretsStay(t)
	tty.types(t, "\x03") // on an empty prompt it ends
	tty.wait(t)
	if code := tty.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ended with %v; it showed %q", tty.cmd.ProcessState, tty.tail())
	}
	u.quiet(t, requests)
	u.wantPending(t, w)
	if n := len(u.history(t, w.id)); n != history {
		t.Errorf("its history has %d rows, it had %d", n, history)
	}
	if r := u.exec(t, program, "stop"); r.exit != 0 {
		t.Fatalf("stop: %v", r)
	}
	opened("a server", 5)
	if r := u.exec(t, program, "open", w.id); r.exit != 2 {
		t.Errorf("open without a terminal: %v", r)
	}
}

// secretsStay looks for the server's password where others could read it, while
// somebody is attached.
func (u *user) secretsStay(t *testing.T) {
	t.Helper()
	password := u.client(t).password
	if password == "" || len(u.running("attach")) == 0 {
		t.Fatal("there is nothing to be looked for")
	}
	if pids := u.running(password); len(pids) > 0 {
		t.Errorf("the password is in the command lines of %v", pids)
	}
	logs, err := filepath.Glob(u.path("state", "intermission", "log", "*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	for _, name := range logs {
		if text, err := os.ReadFile(name); err != nil || bytes.Contains(text, []byte(password)) {
			t.Errorf("the password is in %s, or it can't be read: %v", name, err)
		}
	}
}
