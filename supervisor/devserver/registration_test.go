package devserver

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// plain starts a server without --service and waits until it is ready.
func (u *user) plain(password string) *process {
	u.t.Helper()
	p := &process{u: u}
	args := []string{"serve", "--port", u.freePort()}
	run := u.run(args...)
	p.reg = registration{URL: "http://127.0.0.1:" + args[2], Password: password}
	u.eventually("the plain server is ready", func() bool {
		status, _, err := p.try("GET", "/api/health", nil)
		return err == nil && status == 200
	})
	run.reg = p.reg
	return run
}

func (u *user) freePort() string {
	u.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		u.t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		u.t.Fatal(err)
	}
	return port
}

// TestOneService: a second server finds the lock held, and says nothing.
func TestOneService(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			first := u.start()
			second := u.run("serve", "--service")
			if code := second.wait().ExitCode(); code != 0 || second.out.Len() != 0 {
				t.Errorf("exit status %d, output %q; want 0 and none", code, &second.out)
			}
			if r, err := readRegistration(u.settings().registration); err != nil || r != first.reg {
				t.Errorf("the registration changed: %v", err)
			}
		})
	}
}

func TestRegistration(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	info, err := os.Stat(u.settings().registration)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	if len(p.reg.Password) != 43 || p.reg.Version != "2.2.0" || len(p.reg.ID) != 36 {
		t.Errorf("%+v", p.reg)
	}
	p.stop()
	again := u.start()
	if again.reg.ID == p.reg.ID || again.reg.Password != p.reg.Password {
		t.Error("want a new id and the same password")
	}
	var health struct{ PID int }
	again.want(200, "GET", "/api/health", nil, &health)
	if health.PID != again.reg.PID {
		t.Errorf("health says pid %d, the registration %d", health.PID, again.reg.PID)
	}
}

// TestForeignRegistration: the early kind insists, the claims kind gives way.
func TestForeignRegistration(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k, "INTERMISSION_DEVSERVER_REGISTRATION_INTERVAL=20ms")
			p := u.start()
			other := registration{ID: "other", PID: 1}
			if err := other.publish(u.settings().registration); err != nil {
				t.Fatal(err)
			}
			if k == claims {
				if code := p.wait().ExitCode(); code != 0 {
					t.Errorf("exit status %d", code)
				}
				if r, err := readRegistration(u.settings().registration); err != nil || r != other {
					t.Error("it took the other's registration away")
				}
				return
			}
			back := func() bool {
				r, err := readRegistration(u.settings().registration)
				return err == nil && r == p.reg
			}
			u.eventually("it is registered again", back)
			if err := os.Remove(u.settings().registration); err != nil {
				t.Fatal(err)
			}
			u.eventually("it is registered again", back)
		})
	}
}

// TestPaths: the channel in the version names registration and database.
func TestPaths(t *testing.T) {
	t.Parallel()
	for version, want := range map[string][2]string{
		"2.2.0":                    {"service.json", "opencode.db"},
		"0.0.0-beta-202607170015":  {"service.json", "opencode.db"},
		"0.0.0-next-202607170015":  {"service-next.json", "opencode-next.db"},
		"0.0.0-a-b-c-202607170015": {"service-a-b-c.json", "opencode-a-b-c.db"},
	} {
		env := map[string]string{"HOME": "/home/u", "XDG_STATE_HOME": "/state", "INTERMISSION_DEVSERVER_VERSION": version}
		set, err := newSettings(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		if set.registration != filepath.Join("/state", "opencode", want[0]) || set.database != filepath.Join("/home/u", ".local", "share", "opencode", want[1]) {
			t.Errorf("%s: %s, %s", version, set.registration, set.database)
		}
	}
	set, err := newSettings(func(name string) string { return map[string]string{"HOME": "/h", "OPENCODE_DB": "/x.db"}[name] })
	if err != nil || set.database != "/x.db" {
		t.Errorf("%s, %v", set.database, err)
	}
}

// TestPorts: the next one when its own is busy; a port that was asked for, or nothing.
func TestPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	next, err := listen("127.0.0.1", port, false)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got := next.Addr().(*net.TCPAddr).Port; got <= port {
		t.Errorf("port %d, want one above %d", got, port)
	}
	u := newUser(t, claims)
	_, text, _ := net.SplitHostPort(l.Addr().String())
	p := u.run("serve", "--service", "--port", text)
	if code := p.wait().ExitCode(); code != 1 || !strings.Contains(p.out.String(), text) {
		t.Errorf("exit status %d, output %q", code, &p.out)
	}
}

// TestCommandLine: how generations are told apart.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	u := newUser(t, early)
	for _, row := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"--version"}, 0, "2.0.0\n"},
		{[]string{"serve", "--help"}, 0, "--service"},
		{[]string{"--help"}, 0, "serve"},
		{nil, 2, "serve"},
		{[]string{"nonsense"}, 2, "nonsense"},
		{[]string{"serve", "--nonsense"}, 2, "--service"},
		{[]string{"service"}, 2, "restart"},
		{[]string{"service", "status"}, 1, "stopped"},
	} {
		p := u.run(row.args...)
		if code := p.wait().ExitCode(); code != row.code || !strings.Contains(p.out.String(), row.say) {
			t.Errorf("%v: exit status %d, output %q", row.args, code, &p.out)
		}
	}
}

// TestServiceCommand starts, restarts and stops a server as the real command line does.
func TestServiceCommand(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	do := func(verb string, want int) registration {
		t.Helper()
		p := u.run("service", verb)
		if code := p.wait().ExitCode(); code != want {
			t.Fatalf("service %s: exit status %d: %s", verb, code, &p.out)
		}
		r, _ := readRegistration(u.settings().registration)
		return r
	}
	t.Cleanup(func() { u.run("service", "stop").wait() })
	first := do("start", 0)
	if same := do("start", 0); same != first {
		t.Error("a second start started something")
	}
	do("status", 0)
	if second := do("restart", 0); second.ID == first.ID || second.PID == first.PID {
		t.Error("restart did not start another server")
	}
	do("stop", 0)
	do("status", 1)
}

// TestInProcess runs a server in this process, which goleak watches: all that it starts ends with it.
func TestInProcess(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	out, in := io.Pipe()
	set := u.settings()
	set.password = "secret"
	l, err := listen("127.0.0.1", 0, true)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(set, "secret", in, in)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quit := make(chan int, 1)
	go func() { quit <- s.run(ctx, l) }()
	p := &process{u: u, reg: registration{URL: listenURL(l), Password: "secret"}}
	u.eventually("ready", func() bool {
		status, _, err := p.try("GET", "/api/health", nil)
		return err == nil && status == 200
	})
	p.stream()
	p.begin(long)
	p.begin("[[bgshell sleep 100]] [[question]]")
	p.begin("[[background " + long + "]] [[permission]]")
	cancel()
	select {
	case code := <-quit:
		if code != 130 {
			t.Errorf("exit status %d", code)
		}
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
	_ = in.Close()
}
