//go:build linux

package conformance

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalSignals: a Ctrl-C in the supervisor's terminal, and a terminal that is
// closed, stop all in order. The server has a session of its own and hears neither: the
// signal of the second would end it without a suspension.
func TestTerminalSignals(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(testing.TB, *terminal){
		"interrupted": func(t testing.TB, tty *terminal) { tty.types(t, "\x03") },
		// What the system sends to all in the terminal's foreground.
		"closed": func(t testing.TB, tty *terminal) {
			if err := syscall.Kill(-tty.pid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, kind := range kinds {
			t.Run(name+"/"+kind.name, func(t *testing.T) {
				t.Parallel()
				u := newUser(t, kind.make)
				tty := u.inTerminal(t, program, "run")
				u.supervisor = tty.process
				st := u.serving(t)
				w := begin(t, u.sandbox, u.bed, u.client(t), "stream", u.slow(900, 100), u.planner(), "")
				requests := u.requests(t)
				server, err := unix.Getsid(st.Server.PID)
				if err != nil {
					t.Fatal(err)
				}
				if ours, err := unix.Getsid(tty.pid()); err != nil || server == ours {
					t.Errorf("server and supervisor are in session %d, %v", server, err)
				}
				end(t, tty)
				tty.wait(t)
				u.noServer(t)
				u.up(t)
				u.quiet(t, requests)
				if p := u.wantPending(t, w)[0]; p.Cause != "shutdown" {
					t.Errorf("it is pending by %s, not shutdown", p.Cause)
				}
				if u.text(t, w.id) == "" {
					t.Error("the streamed text is lost: the server was not stopped in order")
				}
			})
		}
	}
}
