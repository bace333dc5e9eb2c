package devserver

import (
	"syscall"
	"testing"
)

// TestSweepResumes is the fault that the product exists for: a server that is
// started alone goes on with what it finds.
func TestSweepResumes(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			slow, fast := p.begin("long work [[slow n=400 ms=20]]"), p.begin("hello")
			p.settle(fast)
			if s := p.signal(syscall.SIGTERM); s.ExitCode() != 130 {
				t.Errorf("exit status %d, want 130", s.ExitCode())
			}
			before, idle := u.requestsOf(slow), u.requestsOf(fast)
			p = u.start()
			u.eventually("the session is resumed by itself", func() bool { return u.requestsOf(slow) > before })
			if _, running := p.actives()[slow]; !running {
				t.Error("the resumed session is not active")
			}
			if n := u.requestsOf(fast); n != idle {
				t.Errorf("the finished session executed: %d requests, want %d", n, idle)
			}
		})
	}
}
