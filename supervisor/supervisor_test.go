package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"intermission/platform"
	"intermission/supervisor/control"
	"intermission/supervisor/devserver"
	"intermission/supervisor/opencode"
)

// asServer makes this test binary a managed server instead.
const asServer = "INTERMISSION_TEST_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		os.Exit(devserver.Main(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	if path := os.Getenv(lockedDatabase); path != "" {
		os.Exit(holdDatabase(path))
	}
	// The handle on the server's database is kept to the end of the process, see supervisor.close.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// bed is one supervisor in this process, with homes of its own.
type bed struct {
	t      testing.TB
	dir    string
	o      Options
	end    context.CancelFunc
	ended  chan error
	client *control.Client

	unfinished bool // it may end with what can't be parked
}

// newBed prepares a supervisor of the dev server. env goes to the server.
func newBed(t testing.TB, env map[string]string) *bed {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Sockets have short paths, test names don't.
	dir, err := os.MkdirTemp("", "im")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bed{t: t, dir: dir}
	paths, err := platform.FindPaths(func(name string) string {
		return map[string]string{"HOME": dir, "INTERMISSION_STATE_DIR": dir + "/state", "INTERMISSION_RUNTIME_DIR": dir + "/run"}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Server.Command = []string{self, "serve", "--service"}
	cfg.Server.ReadyTimeout, cfg.Server.StopTimeout = 20*time.Second, 8*time.Second
	cfg.Server.Environment = map[string]string{asServer: "1", "INTERMISSION_DEVSERVER_REQUESTS": dir + "/requests"}
	for k, v := range env {
		cfg.Server.Environment[k] = v
	}
	b.o = Options{
		Version: "test", Paths: paths, Config: cfg,
		Environ: []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		Power:   func(context.Context, *slog.Logger, func(platform.PowerEvent)) {}, // this machine's own is none of ours
	}
	return b
}

func (b *bed) start() {
	b.t.Helper()
	ctx, end := context.WithCancel(context.Background())
	b.end, b.ended = end, make(chan error, 1)
	go func() { b.ended <- Run(ctx, b.o) }()
	b.client = control.Dial(b.o.Paths.Socket)
	b.t.Cleanup(b.stop)
}

// stop ends the supervisor gracefully; it may have been stopped before.
func (b *bed) stop() {
	b.t.Helper()
	if b.end == nil {
		return
	}
	b.end()
	b.end = nil
	select {
	case err := <-b.ended:
		if err != nil && !(b.unfinished && errors.Is(err, ErrUnfinished)) {
			b.t.Errorf("Run: %v", err)
		}
	case <-time.After(40 * time.Second):
		b.t.Error("the supervisor does not end")
	}
	b.client.Close()
}

// phase waits until the server is in phase p, and gives the status.
func (b *bed) phase(p Phase) control.Status {
	b.t.Helper()
	var st control.Status
	b.until(fmt.Sprintf("phase %s", p), func() bool {
		var err error
		st, err = b.client.Status(b.t.Context())
		return err == nil && st.Server.State == string(p)
	}, func() any { return st.Server })
	return st
}

func (b *bed) until(what string, ok func() bool, state func() any) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("never came: %s; now %+v", what, state())
		}
		<-tick.C
	}
}

// writeProgram writes a file that is to be executed. While it is open for writing
// no other test may fork: the child would hold it open, and executing it be refused
// (ETXTBSY).
func writeProgram(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o700)
}

func signal(t *testing.T, pid int, sig platform.Sig) {
	t.Helper()
	id, err := platform.Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestStartsStopsAndRemembersTheWish(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	if st.Server.Generation != "v2" || st.Server.PID == 0 || st.Server.Incarnation == "" || st.Server.Adopted {
		t.Errorf("status %+v", st.Server)
	}
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st = b.phase(Stopped); st.Server.Desired != "stopped" {
		t.Errorf("after stop: %+v", st.Server)
	}
	b.stop()
	b.start()
	if st = b.phase(Stopped); st.Server.Desired != "stopped" {
		t.Errorf("the wish was forgotten: %+v", st.Server)
	}
	if _, err := b.client.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.phase(Running)
}

func TestNotReadyIsToldApart(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"never-healthy": "answer",
		"health-500":    "500",
		"health-401":    "password",
		"exit-at-once":  "status 1",
		"exit-silently": "nothing",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_FAULT": fault})
			b.o.Config.Server.ReadyTimeout = 3 * time.Second
			b.o.Policy = Policy{Window: time.Minute, MaxDeaths: 1, MaxDelay: time.Second}
			b.start()
			st := b.phase(Failed)
			if !strings.Contains(st.Server.Reason, want) {
				t.Errorf("reason %q does not say %q", st.Server.Reason, want)
			}
			if st.Server.LastExit == nil {
				t.Error("no last exit")
			}
		})
	}
}

func TestBlockedWhenThePromiseCantBeAssured(t *testing.T) {
	t.Parallel()
	t.Run("unknown database shape", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, nil)
		b.unfinished = true
		data := filepath.Join(b.dir, ".local/share/opencode")
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "opencode.db"), []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		if st := b.phase(Blocked); !strings.Contains(st.Server.Reason, "opencode.db") || st.Server.NextAttempt == nil {
			t.Errorf("%+v", st.Server)
		}
		if _, err := os.Stat(filepath.Join(b.dir, "requests")); err == nil {
			t.Error("the server was started")
		}
	})
	t.Run("ledger from elsewhere", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, nil)
		if err := os.MkdirAll(b.o.Paths.State, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(b.o.Paths.Ledger, []byte(strings.Repeat("not a ledger ", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		b.start()
		if st := b.phase(Blocked); !strings.Contains(st.Server.Reason, "ledger") {
			t.Errorf("%+v", st.Server)
		}
		var e *control.Error
		if _, err := b.client.Pending(t.Context()); !errors.As(err, &e) || !strings.Contains(e.Message, "ledger") {
			t.Errorf("pending says %v", err)
		}
		// It goes on by itself when the fault ends.
		if err := os.Remove(b.o.Paths.Ledger); err != nil {
			t.Fatal(err)
		}
		b.phase(Running)
	})
	t.Run("lock held", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, nil)
		b.o.Config.Server.ReadyTimeout = time.Second
		dir := filepath.Join(b.dir, ".local/state/opencode")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lock, err := platform.TryServerLock(filepath.Join(dir, "service.json.lock"))
		if err != nil {
			t.Fatal(err)
		}
		b.start()
		if st := b.phase(Blocked); !strings.Contains(st.Server.Reason, "lock") {
			t.Errorf("%+v", st.Server)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		b.phase(Running)
	})
}

func TestOnlyOneSupervises(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	var already *AlreadyRunningError
	if err := Run(t.Context(), b.o); !errors.As(err, &already) {
		t.Errorf("a second one on the same paths: %v", err)
	}
	// Paths of its own, but the same data directory.
	other := newBed(t, nil)
	other.o.Environ = b.o.Environ
	other.start()
	if st := other.phase(Failed); !strings.Contains(st.Server.Reason, "another intermission") {
		t.Errorf("%+v", st.Server)
	}
	other.stop()
	// The same state, another runtime directory.
	third := b.o
	third.Paths.Runtime = other.o.Paths.Runtime
	third.Paths.InstanceLock, third.Paths.Socket = other.o.Paths.InstanceLock, other.o.Paths.Socket
	if err := Run(t.Context(), third); !errors.As(err, &already) {
		t.Errorf("a second one on the same state: %v", err)
	}
	if st, err := b.client.Status(t.Context()); err != nil || st.Server.State != "running" {
		t.Errorf("the first one: %+v, %v", st.Server, err)
	}
}

func TestProgramNotFound(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Config.Server.Command = []string{"no-such-opencode"}
	b.start()
	if st := b.phase(Failed); !strings.Contains(st.Server.Reason, "no-such-opencode") || !strings.Contains(st.Server.Reason, "intermission doctor") {
		t.Errorf("%+v", st.Server)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b := newBed(t, nil)
	b.o.Config.Server.Generation, b.o.Config.Server.Port = "v1", l.Addr().(*net.TCPAddr).Port
	b.start()
	st := b.phase(Failed)
	if !strings.Contains(st.Server.Reason, fmt.Sprintf("port %d is taken", b.o.Config.Server.Port)) {
		t.Errorf("%+v", st.Server)
	}
}

func TestStoppedFromOutsideThenSuccessorIsAdopted(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	signal(t, st.Server.PID, platform.Terminate)
	st = b.phase(Stopped)
	if st.Server.Desired != "running" || !strings.Contains(st.Server.Reason, "outside") || st.Server.Restarts != 0 {
		t.Errorf("%+v", st.Server)
	}
	foreign, err := platform.Start(platform.Spec{Argv: b.o.Config.Server.Command, Env: append(b.o.Environ, asServer+"=1"), Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	go foreign.Wait()
	st = b.phase(Running)
	if !st.Server.Adopted || st.Server.PID != foreign.Identity().PID {
		t.Errorf("%+v", st.Server)
	}
	b.stop()
	if foreign.Identity().Alive() {
		t.Error("the adopted server outlived a graceful stop")
	}
}

func TestKilledComesBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	first := b.phase(Running)
	signal(t, first.Server.PID, platform.Kill)
	var st control.Status
	b.until("another incarnation", func() bool {
		st, _ = b.client.Status(t.Context())
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	}, func() any { return st.Server })
	if st.Server.Restarts != 1 || st.Server.LastExit == nil || st.Server.LastExit.Signal == "" {
		t.Errorf("%+v %+v", st.Server, st.Server.LastExit)
	}
}

func TestShim(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"exits": "#!/bin/sh\nSELF \"$@\" &\n",
		"stays": "#!/bin/sh\nSELF \"$@\"\nexit $?\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			shim := filepath.Join(b.dir, "opencode")
			script := strings.ReplaceAll(script, "SELF", b.o.Config.Server.Command[0])
			if err := writeProgram(shim, []byte(script)); err != nil {
				t.Fatal(err)
			}
			b.o.Config.Server.Command[0] = shim
			b.o.Config.Server.Generation = "v2"
			b.start()
			st := b.phase(Running)
			id, err := platform.Identify(st.Server.PID)
			if err != nil {
				t.Fatal(err)
			}
			if st.Server.Adopted {
				t.Error("its own server counts as adopted")
			}
			b.stop()
			if id.Alive() {
				t.Error("the server behind the shim outlived the stop")
			}
		})
	}
}

func TestReplacedProgramIsOneControlledStart(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	program := filepath.Join(b.dir, "opencode")
	if err := os.Link(b.o.Config.Server.Command[0], program); err != nil {
		data, err := os.ReadFile(b.o.Config.Server.Command[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := writeProgram(program, data); err != nil {
			t.Fatal(err)
		}
	}
	b.o.Config.Server.Command[0] = program
	b.start()
	first := b.phase(Running)
	// An upgrade puts another file in place, and the server exits by its API with 0.
	next := program + ".new"
	if err := writeProgram(next, []byte("#!/bin/sh\nexec "+os.Args[0]+" \"$@\"\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, program); err != nil {
		t.Fatal(err)
	}
	r, ok := loadRecord(b.o.Paths.ServerRecord)
	if !ok {
		t.Fatal("no record")
	}
	if accepted, err := opencode.Connect(r.Incarnation).Stop(t.Context()); err != nil || !accepted {
		t.Fatal(err)
	}
	var st control.Status
	b.until("the next incarnation", func() bool {
		st, _ = b.client.Status(t.Context())
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	}, func() any { return st.Server })
	if st.Server.Restarts != 0 {
		t.Errorf("counted as a crash: %+v", st.Server)
	}
}
