//go:build linux

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
)

// serviceKinds are the kinds that resume by themselves at boot.
var serviceKinds = kinds[1:]

// TestAlone is the control: without intermission the servers do what the other tests
// hold that they don't, so those can fail.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, kind := range serviceKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t)
			b := kind.make(t, s)
			server, a := b.alone(t)
			command := toolCommand()
			all := []work{
				begin(t, s, b, a, "stream", b.slow(900, 100), "", ""),
				begin(t, s, b, a, "shell", b.tool(command), "", command),
			}
			server.end(t, syscall.SIGTERM)
			b.alone(t)
			for _, w := range all {
				eventually(t, "the server's own resume of "+w.marker, func() error {
					if b.turns(t, w) < 2 {
						return errors.New("no request has reached the model")
					}
					return nil
				})
			}
		})
	}
}

// TestForeignStart lets others start the service the very moment ours ends, as a TUI or
// a desktop app does, again and again: their boot sweep finds nothing.
func TestForeignStart(t *testing.T) {
	t.Parallel()
	ends := []struct {
		name string
		do   func(testing.TB, *user, status)
	}{
		{"killed", func(t testing.TB, u *user, st status) { kill(t, st.Server.PID) }},
		{"stopped by its API", func(t testing.TB, u *user, st status) { stopService(t, u) }},
		{"after the supervisor", func(t testing.TB, u *user, st status) { u.supervisor.end(t, syscall.SIGTERM) }},
	}
	for _, kind := range serviceKinds {
		for _, end := range ends {
			t.Run(kind.name+"/"+end.name, func(t *testing.T) {
				t.Parallel()
				u := newUser(t, kind.make)
				before := u.up(t)
				a := u.client(t)
				command := toolCommand()
				stream := begin(t, u.sandbox, u.bed, a, "stream", u.slow(900, 100), "", "")
				shell := begin(t, u.sandbox, u.bed, a, "shell", u.tool(command), "", command)
				requests := u.requests(t)

				foreign := startForeigners(t, u)
				end.do(t, u, before)
				eventually(t, "a server after ours", func() error {
					r, err := u.bed.(*v2).registered()
					if err != nil {
						return err
					}
					if r.PID == before.Server.PID {
						return errors.New("ours is registered")
					}
					_, err = u.connect()
					return err
				})
				u.quiet(t, requests)
				foreign()
				if !alive(u.supervisor.pid()) {
					u.up(t)
				}
				u.serving(t)
				u.wantPending(t, stream, shell)
				u.quiet(t, requests)
			})
		}
	}
}

// stopService stops the service as the user's `opencode service stop` does.
func stopService(t testing.TB, u *user) {
	t.Helper()
	a := u.client(t)
	r, err := u.bed.(*v2).registered()
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Accepted bool }
	if err := a.call("POST", "/api/service/stop", map[string]any{"instanceID": r.ID}, &answer); err != nil || !answer.Accepted {
		t.Fatalf("stop: %v, %v", answer.Accepted, err)
	}
}

// startForeigners starts `serve --service` over and over, each as soon as the one before
// has met a held lock and given up. What it returns ends that, but no server that won.
func startForeigners(t testing.TB, u *user) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var tries atomic.Int64
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cmd := exec.Command(program, u.command()[1:]...)
			cmd.Dir, cmd.Env = u.path("home"), u.env
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				t.Errorf("cannot start a foreign service: %v", err)
				return
			}
			tries.Add(1)
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended: // it met a held lock
			case <-ctx.Done(): // it serves: it stays, and ends with the sandbox
				return
			}
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop) // before the sandbox's, where a test fails
	eventually(t, "foreigners at the door", func() error {
		if n := tries.Load(); n < 2 {
			return fmt.Errorf("%d have tried", n)
		}
		return nil
	})
	return stop
}
