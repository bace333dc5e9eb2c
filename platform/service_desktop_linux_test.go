package platform

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

func init() { roles["supervise"] = roleSupervise }

// roleSupervise holds the lock of the one supervisor and listens, as that does.
func roleSupervise([]string) error {
	paths, err := FindPaths(os.Getenv)
	if err != nil {
		return err
	}
	if _, there := os.LookupEnv("NOTIFY_SOCKET"); there {
		return errors.New("inherited NOTIFY_SOCKET")
	}
	if err := EnsurePrivateDir(paths.Runtime); err != nil {
		return err
	}
	lock, err := TryLock(paths.InstanceLock)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	l, err := Listen(paths.Socket)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	return block()
}

func TestDesktopLogin(t *testing.T) {
	m := newFakeManager(t)
	h := m.host
	h.booted = m.path("no-systemd")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runtime := socketDir(t) // a socket's path must be short
	s := Service{Name: "intermission", Title: "Intermission", Comment: "x", Argv: []string{self, "run", "--service"},
		Env: map[string]string{roleVariable: "supervise", "INTERMISSION_RUNTIME_DIR": runtime}}
	act := func(what string, act func(keeper) error) error {
		t.Helper()
		k, _, err := h.installed(t.Context(), s)
		if err != nil || k == nil {
			return fmt.Errorf("%s: %w", what, errors.Join(err, ErrNotInstalled))
		}
		return act(k)
	}
	start := func() error { return act("start", func(k keeper) error { return k.start(t.Context()) }) }
	stop := func() error { return act("stop", func(k keeper) error { return k.stop(t.Context()) }) }
	status := func() ServiceStatus {
		t.Helper()
		_, st, err := h.installed(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}

	if err := start(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
	report, err := h.install(t.Context(), s, ServiceOptions{})
	if err != nil || report.Kind != DesktopLogin {
		t.Fatalf("%+v, %v", report, err)
	}
	if again, err := h.install(t.Context(), s, ServiceOptions{}); err != nil || !strings.Contains(again.Done[0], "current") {
		t.Errorf("%+v, %v", again, err)
	}
	if st := status(); !st.Installed || !st.Enabled || !st.Current || st.Running || st.Program != self || st.State != "not running" {
		t.Errorf("got the status %+v", st)
	}
	moved := s
	moved.Env = maps.Clone(s.Env)
	moved.Env["INTERMISSION_STATE_DIR"] = "/data"
	if _, st, err := h.installed(t.Context(), moved); err != nil || st.Current {
		t.Errorf("got the status %+v, %v", st, err)
	}

	if err := start(); err != nil {
		t.Fatal(err)
	}
	st := status()
	if !st.Running || st.PID == 0 {
		t.Fatalf("got the status %+v", st)
	}
	id, err := Identify(st.PID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = id.Signal(Kill) })
	if err := start(); err != nil || status().PID != st.PID {
		t.Errorf("a second one was started: %v", err)
	}
	if err := stop(); !errors.Is(err, ErrStopByControl) {
		t.Errorf("got %v", err)
	}
	if _, err := h.uninstall(t.Context(), s); !errors.Is(err, ErrStopByControl) || !status().Installed {
		t.Errorf("it runs, and was uninstalled: %v", err)
	}

	ended, err := Watch(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(Kill); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it doesn't end")
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := h.uninstall(t.Context(), s); err != nil || status().Installed {
		t.Errorf("uninstalled with %v: %+v", err, status())
	}
	if _, err := h.uninstall(t.Context(), s); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

func TestDesktopLoginSaysWhyItDoesntStart(t *testing.T) {
	m := newFakeManager(t)
	h := m.host
	h.booted = m.path("no-systemd")
	m.write("home/state/intermission/log/intermission.log", "config.toml: line 3\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Service{Name: "intermission", Argv: []string{self, "5"}, Env: map[string]string{roleVariable: "exit"}}
	if _, err := h.install(t.Context(), s, ServiceOptions{}); err != nil {
		t.Fatal(err)
	}
	err = h.act(t.Context(), s, "start", keeper.start)
	if err == nil || !strings.Contains(err.Error(), "status 5") || !strings.HasSuffix(err.Error(), "config.toml: line 3") {
		t.Errorf("got %v", err)
	}
}
