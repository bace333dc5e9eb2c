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

	mu       sync.Mutex
	acts     []string
	st       platform.ServiceStatus
	stopping func() // at a stop
	failing  error  // of a start
	end      func() // of the supervisor that listens; nil when none does
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
	s.end = func() {
		cancel()
		<-ended
	}
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

func (s *system) Status(context.Context) (platform.ServiceStatus, error) { return s.st, nil }

// supervising is the supervisor that the service runs.
type supervising struct {
	control.Backend
	s *system
}

func (v supervising) HandOver(context.Context) (control.Ending, error) {
	v.s.did("hand over")
	return control.Ending{PID: os.Getpid(), Lock: v.s.paths.InstanceLock}, nil
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
