package devserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFaultsAtStart: each way of not coming up is another.
func TestFaultsAtStart(t *testing.T) {
	t.Parallel()
	for fault, say := range map[string]string{
		"exit-at-once":  "cannot start",
		"exit-silently": "",
		"port-taken":    "49374",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, claims)
			u.fault(fault)
			p := u.run("serve", "--service")
			if code := p.wait().ExitCode(); code != 1 {
				t.Errorf("exit status %d, want 1", code)
			}
			if text := p.out.String(); !strings.Contains(text, say) || (say == "") != (text == "") {
				t.Errorf("output %q", text)
			}
			if _, err := readRegistration(u.settings().registration); err == nil {
				t.Error("registered")
			}
		})
	}
}

// TestUnhealthy: registered, and yet not ready.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]struct {
		status int
		body   string
	}{"health-500": {500, `"healthy":true`}, "health-401": {401, "UnauthorizedError"}} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, claims)
			p := u.start()
			u.fault(fault)
			got, body, err := p.try("GET", "/api/health", nil)
			if err != nil || got != want.status || !strings.Contains(string(body), want.body) {
				t.Errorf("%d %s %v", got, body, err)
			}
			p.want(200, "GET", "/api/session/active", nil, nil) // the rest works
		})
	}
	t.Run("never-healthy", func(t *testing.T) {
		t.Parallel()
		u := newUser(t, claims)
		p := u.start()
		u.fault("never-healthy")
		answered := make(chan error, 1)
		go func() {
			_, _, err := p.try("GET", "/api/health", nil)
			answered <- err
		}()
		select {
		case err := <-answered:
			t.Errorf("answered: %v", err)
		case <-time.After(300 * time.Millisecond): // an absence can only be waited for
		}
		p.signal(syscall.SIGTERM)
		<-answered
	})
	t.Run("boot failed", func(t *testing.T) {
		t.Parallel()
		u := newUser(t, claims)
		if err := os.MkdirAll(u.settings().database, 0o700); err != nil { // no database can be there
			t.Fatal(err)
		}
		p := u.run("serve", "--service")
		u.eventually("health says 500", func() bool {
			r, err := readRegistration(u.settings().registration)
			if err != nil {
				return false
			}
			p.reg = r
			status, _, err := p.try("GET", "/api/health", nil)
			return err == nil && status == 500
		})
		if second := u.run("serve", "--service"); second.wait().ExitCode() != 0 {
			t.Error("it gave its lock up")
		}
	})
}

// TestStartingIs503: registered first, ready later; and the other names of the readiness call.
func TestStartingIs503(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"health", "status", "info"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUser(t, claims, "INTERMISSION_DEVSERVER_HEALTH="+name, "INTERMISSION_DEVSERVER_BOOT_DELAY=200ms")
			p := u.run("serve", "--service")
			seen := map[int]bool{}
			u.eventually("ready", func() bool {
				r, err := readRegistration(u.settings().registration)
				if err != nil {
					return false
				}
				p.reg = r
				status, _, err := p.try("GET", "/api/"+name, nil)
				seen[status] = err == nil
				return err == nil && status == 200
			})
			if !seen[503] || len(seen) > 3 {
				t.Errorf("statuses %v", seen)
			}
		})
	}
}

// TestRefusedContinuation: resume-500, resume-404 and drop-before don't execute, drop-resume does.
func TestRefusedContinuation(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fault    string
		status   int // 0: no answer
		requests int
	}{{"resume-500", 500, 0}, {"resume-404", 404, 0}, {"drop-before", 0, 0}, {"drop-resume", 0, 1}} {
		for _, call := range []string{"prompt", "synthetic", "resume"} {
			t.Run(row.fault+"/"+call, func(t *testing.T) {
				t.Parallel()
				u := newUser(t, claims)
				p := u.start()
				id := p.session()
				u.fault(row.fault)
				status, _, err := p.try("POST", "/api/session/"+id+"/"+call, data{"id": "msg_1", "text": "go on"})
				if (err != nil) != (row.status == 0) || status != row.status {
					t.Errorf("status %d, %v; want %d", status, err, row.status)
				}
				if row.requests > 0 {
					u.eventually("it executes", func() bool { return u.requestsOf(id) == row.requests })
				}
				u.fault("")
				p.settle(id)
				if n := u.requestsOf(id); n != row.requests {
					t.Errorf("%d requests, want %d", n, row.requests)
				}
			})
		}
	}
}

// TestCrashes: by a resume, and by the script.
func TestCrashes(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	u.fault("crash-after-resume=50ms")
	id := p.begin(long)
	if code := p.wait().ExitCode(); code != 1 || !u.suspended(id) {
		t.Errorf("exit status %d, claimed %v", code, u.suspended(id))
	}
	u.fault("")
	p = u.start()
	u.eventually("resumed", func() bool { return u.requestsOf(id) == 2 })
	p.begin("[[crash 20ms]]")
	if code := p.wait().ExitCode(); code != 1 {
		t.Errorf("exit status %d", code)
	}
	p = u.run("serve", "--service")
	if p.wait().ExitCode() != 1 {
		t.Error("the resumed session did not crash the server again")
	}
}

// TestStubborn: a stop that is ignored or slow.
func TestStubborn(t *testing.T) {
	t.Parallel()
	u := newUser(t, early)
	p := u.start()
	u.fault("ignore-term,ignore-stop")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.want(200, "POST", "/api/service/stop", data{"instanceID": p.reg.ID}, nil)
	p.want(200, "GET", "/api/health", nil, nil)
	u.fault("slow-stop=300ms")
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	u.eventually("health says 503", func() bool {
		status, _, err := p.try("GET", "/api/health", nil)
		return err == nil && status == 503
	})
	p.wait()
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("stopped in %v", took)
	}
}

func TestBigOutput(t *testing.T) {
	t.Parallel()
	u := newUser(t, early)
	u.fault("big-output=100000")
	p := u.start()
	p.stop()
	if n := p.out.Len(); n < 150_000 {
		t.Errorf("%d bytes of output", n)
	}
}

func TestFaultList(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "faults")
	if faults("@" + file).on("a") {
		t.Error("a fault of a file that isn't there")
	}
	if err := os.WriteFile(file, []byte(" a, b=2s,c=12\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []faults{"a, b=2s,c=12", faults("@" + file)} {
		d, ok := f.duration("b")
		if !f.on("a") || f.on("x") || !ok || d != 2*time.Second || f.size("c", 1) != 12 || f.size("x", 1) != 1 {
			t.Errorf("%q is read wrongly", f)
		}
		if _, ok := f.duration("a"); ok {
			t.Error("a duration from nowhere")
		}
	}
}

// TestDeleted: a session can go while it is at work.
func TestDeleted(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.begin(long)
	p.want(204, "DELETE", "/api/session/"+id, nil, nil)
	p.want(404, "POST", "/api/session/"+id+"/resume", nil, nil)
	if len(p.actives()) != 0 {
		t.Error("a deleted session is active")
	}
	p.stop()
	if text := p.out.String(); strings.Contains(text, "Error:") {
		t.Errorf("output %q", text)
	}
	if _, err := os.Stat(u.settings().database); errors.Is(err, os.ErrNotExist) {
		t.Error("no database")
	}
}
