package service

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// system is a system's service in a test.
type system struct {
	t     *testing.T
	paths platform.Paths

	mu         sync.Mutex
	acts       []string
	st         platform.ServiceStatus
	installing func() // at an installation
	stopping   func() // at a stop
	unknown    error  // of a question
	watched    func() // at a look at its outcome
	failing    error  // of a start
	end        func() // of the supervisor that listens; nil when none does
}

func newSystem(t *testing.T, st platform.ServiceStatus) (*system, Background) {
	dir := filepath.Join(t.TempDir(), "own")
	if err := platform.EnsurePrivateDir(dir); err != nil {
		t.Fatal(err)
	}
	s := &system{t: t, st: st, paths: platform.Paths{
		State: dir, Log: dir, Socket: filepath.Join(dir, "s"), ConfigFile: filepath.Join(dir, "config.toml"),
		ServerRecord: filepath.Join(dir, "server.json"), InstanceLock: filepath.Join(dir, "lock"),
	}}
	t.Cleanup(func() {
		if s.end != nil {
			s.end()
		}
	})
	return s, Background{Paths: s.paths, keeper: s, getenv: func(string) string { return "" }}
}

// listen has a supervisor answer.
func (s *system) listen() {
	l, err := platform.Listen(s.paths.Socket)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- control.NewServer(supervising{s: s}, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	s.end = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
}

func (s *system) did(act string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acts = append(s.acts, act)
}

func (s *system) want(acts ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.acts, acts) {
		s.t.Errorf("%q, not %q", s.acts, acts)
	}
}

func (s *system) Install(context.Context, platform.ServiceOptions) (platform.ServiceReport, error) {
	s.did("install")
	s.st.Installed, s.st.Current = true, true
	if s.installing != nil {
		s.installing()
	}
	return platform.ServiceReport{Kind: s.st.Kind}, nil
}

func (s *system) Uninstall(context.Context) (platform.ServiceReport, error) {
	s.did("uninstall")
	return platform.ServiceReport{}, nil
}

// Start is of a service that is ready when it listens.
func (s *system) Start(context.Context) error {
	s.did("start")
	if s.failing == nil && s.end == nil {
		s.listen()
	}
	return s.failing
}

func (s *system) Stop(context.Context) error {
	s.did("stop")
	if s.stopping != nil {
		s.stopping()
	}
	return nil
}

func (s *system) Status(context.Context) (platform.ServiceStatus, error) { return s.st, s.unknown }

// supervising is the supervisor that the service runs.
type supervising struct {
	control.Backend
	s *system
}

func (v supervising) HandOver(context.Context) (control.Ending, error) {
	v.s.did("hand over")
	return control.Ending{PID: os.Getpid(), Lock: v.s.paths.InstanceLock}, nil
}

func (v supervising) Watch(_ context.Context, send func(control.Snapshot) error) error {
	if v.s.watched != nil {
		v.s.watched()
		return send(control.Snapshot{Status: control.Status{Server: control.ServerStatus{State: "starting"}}})
	}
	return send(control.Snapshot{Status: control.Status{Server: control.ServerStatus{State: "running"}}})
}

func (supervising) MayLeave(context.Context) error { return nil }

func (supervising) Status(context.Context) (control.Status, error) {
	return control.Status{Supervisor: control.SupervisorStatus{PID: os.Getpid()}}, nil
}

// leaveServer has a server recorded that lives: this process.
func (s *system) leaveServer() {
	id, err := platform.Identify(os.Getpid())
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{"id": "one", "identity": id})
	if err == nil {
		err = os.WriteFile(s.paths.ServerRecord, b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestRestartDoesNotStop: a supervisor that is being started doesn't answer yet, and may have adopted a server.
func TestRestartDoesNotStop(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Running: true, PID: 7})
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("start", "hand over", "start")
}

func TestRestartOfNone(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser})
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("start")
}

// TestStartAfterHandOverFails: who restarts has to know that nobody attends the server.
func TestStartAfterHandOverFails(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Running: true, PID: 7})
	s.listen()
	s.failing = errors.New("no bus")
	s.leaveServer()
	err := b.Restart(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no bus") || !strings.Contains(err.Error(), "intermission run") {
		t.Error(err)
	}
	s.want("hand over", "start")
}

// TestStopTellsWhatIsUnfinished: not every service manager tells with what a supervisor has ended.
func TestStopTellsWhatIsUnfinished(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{Installed: true, Kind: platform.LogonTask})
	file, err := os.Create(filepath.Join(s.paths.Log, "intermission.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := slog.New(slog.NewTextHandler(file, nil))
	log.Error(supervisor.ErrUnfinished.Error(), "reason", "of an earlier end")
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	s.stopping = func() { log.Error(supervisor.ErrUnfinished.Error(), "reason", `the disk of "/d" is full`) }
	err = b.Stop(t.Context())
	if !errors.Is(err, supervisor.ErrUnfinished) || !strings.Contains(err.Error(), `parked: the disk of "/d" is full;`) {
		t.Error(err)
	}
}

// TestUndoOfAnInstallation: what was there before isn't taken away, and what stays is named.
func TestUndoOfAnInstallation(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		t.Setenv(name, "")
		t.Setenv(strings.ToLower(name), "")
	}
	for _, c := range []struct {
		before  platform.ServiceStatus
		unknown error
		linger  bool
		undone  bool
		has     string
	}{
		{undone: true, has: "no service was installed"},
		{linger: true, undone: true, has: "lingering stays on"},
		{before: platform.ServiceStatus{Installed: true}},
		{unknown: errors.New("the bus is slow")},
	} {
		c.before.Kind = platform.SystemdUser
		s, b := newSystem(t, c.before)
		s.failing = errors.New("no bus")
		s.unknown = c.unknown
		_, err := b.Install(t.Context(), Options{ServiceOptions: platform.ServiceOptions{Linger: c.linger}})
		if err == nil || !strings.Contains(err.Error(), "no bus") || !strings.Contains(err.Error(), c.has) {
			t.Errorf("%+v: %v", c, err)
		}
		if slices.Contains(s.acts, "uninstall") != c.undone {
			t.Errorf("%+v: %q", c, s.acts)
		}
	}
}

// TestInstallWithTheManagerThatComes: lingering starts the user's manager, which starts what is enabled.
func TestInstallWithTheManagerThatComes(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Unreachable: true})
	s.installing = func() {
		s.st.Unreachable, s.st.Running, s.st.PID = false, true, os.Getpid()
		s.listen()
	}
	report, err := b.Install(t.Context(), Options{ServiceOptions: platform.ServiceOptions{Linger: true}})
	if err != nil || !strings.Contains(strings.Join(report.Done, " "), "It runs already") {
		t.Errorf("%+v, %v", report, err)
	}
	s.want("install")
}

// TestOutcomeOfOneThatEnds: a supervisor that dies while it starts its server has no outcome.
func TestOutcomeOfOneThatEnds(t *testing.T) {
	s, b := newSystem(t, platform.ServiceStatus{})
	gone := make(chan struct{})
	s.watched = sync.OnceFunc(func() { close(gone) })
	s.listen()
	go func() {
		<-gone
		s.end()
	}()
	if st := b.Outcome(t.Context()); st != nil {
		t.Errorf("%+v", st.Server)
	}
}
