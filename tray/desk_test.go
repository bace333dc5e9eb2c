//go:build linux

package tray

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"intermission/platform"
	"intermission/supervisor/control"
)

// built gives the path of intermission as users have it, built once.
var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("INTERMISSION_BIN"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "tray")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "intermission")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+testVersion, "-o", path, "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build intermission: %w\n%s", err, out)
	}
	return path, nil
})

const testVersion = "1.0"

func intermission(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// desk is one user at a desktop: a home of their own and a session bus. Trays,
// supervisors and servers that run on it are started by its methods.
type desk struct {
	root  string
	env   []string
	paths platform.Paths
}

func newDesk(t testing.TB, b *bus) *desk {
	t.Helper()
	// Not t.TempDir: with the name of a test in it, a socket's path is too long (108 bytes).
	root, err := os.MkdirTemp("", "desk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	d := &desk{root: root}
	for _, dir := range []string{"home", "config", "state", "data", "cache", "run"} {
		if err := os.Mkdir(d.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d.env = []string{
		"PATH=" + os.Getenv("PATH"), "SHELL=/bin/sh", "NO_COLOR=1", "HOME=" + d.path("home"), "TZ=UTC",
		"XDG_CONFIG_HOME=" + d.path("config"), "XDG_STATE_HOME=" + d.path("state"), "XDG_DATA_HOME=" + d.path("data"),
		"XDG_CACHE_HOME=" + d.path("cache"), "TMPDIR=" + d.path("cache"), "XDG_RUNTIME_DIR=" + d.path("run"), "XDG_CONFIG_DIRS=" + d.path("etc"),
	}
	if b != nil {
		d.env = append(d.env, "DBUS_SESSION_BUS_ADDRESS="+b.Address())
	}
	d.paths, err = platform.FindPaths(d.getenv)
	if err != nil {
		t.Fatal(err)
	}
	d.write(t, "[notify]\nquiet = []\n", "config", "intermission", "config.toml")
	return d
}

func (d *desk) path(elem ...string) string {
	return filepath.Join(append([]string{d.root}, elem...)...)
}

func (d *desk) getenv(name string) string {
	for _, e := range d.env {
		if v, found := strings.CutPrefix(e, name+"="); found {
			return v
		}
	}
	return ""
}

func (d *desk) write(t testing.TB, text string, elem ...string) {
	t.Helper()
	name := d.path(elem...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// program is a child of the test, ended at the test's end at the latest.
type program struct {
	cmd    *exec.Cmd
	done   chan struct{}
	mu     sync.Mutex
	output bytes.Buffer
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.Write(b)
}

// said is what it has written so far.
func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

// start starts intermission with args and more environment.
func (d *desk) start(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	return d.launch(t, exec.Command(intermission(t), args...), env)
}

func (d *desk) launch(t testing.TB, cmd *exec.Cmd, env []string) *program {
	t.Helper()
	p := &program{cmd: cmd, done: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = append(append([]string{}, d.env...), env...), d.path("home")
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.end(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(cmd.Args, " "), p.said())
		}
	})
	return p
}

// end signals it and waits until it is gone.
func (p *program) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	p.wait(t)
}

// wait waits for its end, and gives its exit status.
func (p *program) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		t.Fatalf("%s lives on after %v; it said:\n%s", p.cmd, patience, p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// run runs a command to its end.
func (d *desk) run(t testing.TB, args ...string) (status int, said string) {
	t.Helper()
	p := d.start(t, nil, args...)
	return p.wait(t), p.said()
}

// eventually waits until check returns nil. What can be waited for by an event isn't
// waited for so.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fakeSupervisor serves the control API with whatever a test wants to be shown.
type fakeSupervisor struct {
	control.Backend // what the tray doesn't call
	mu              sync.Mutex
	snap            control.Snapshot
	changed         chan struct{}
	acts            []string
	sent            *control.Snapshot // what was sent last
	hold            chan struct{}     // acts wait for it, unless nil
}

// supervise starts a fake supervisor that says snap; end retires it.
func (d *desk) supervise(t testing.TB, snap control.Snapshot) (f *fakeSupervisor, end func()) {
	t.Helper()
	for _, dir := range []string{d.paths.State, d.paths.Runtime} {
		if err := platform.EnsurePrivateDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	l, err := platform.Listen(d.paths.Socket)
	if err != nil {
		t.Fatal(err)
	}
	f = &fakeSupervisor{snap: snap, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.NewServer(f, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	if err := d.paths.RecordSocket(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return f, end
}

// say changes what is shown.
func (f *fakeSupervisor) say(snap control.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.snap = snap
	close(f.changed)
	f.changed = make(chan struct{})
}

// wantRead waits until what is shown has been sent to who watches.
func (f *fakeSupervisor) wantRead(t testing.TB) {
	t.Helper()
	eventually(t, "it is sent", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.sent == nil || f.sent.Status.Server.RSSBytes != f.snap.Status.Server.RSSBytes {
			return errors.New("not yet")
		}
		return nil
	})
}

// did gives the acts that came, as "VERB ID AT".
func (f *fakeSupervisor) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.acts...)
}

func (f *fakeSupervisor) act(format string, args ...any) {
	f.mu.Lock()
	f.acts = append(f.acts, fmt.Sprintf(format, args...))
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

func (f *fakeSupervisor) now() (control.Snapshot, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snap, f.changed
}

func (f *fakeSupervisor) Watch(ctx context.Context, send func(control.Snapshot) error) error {
	for {
		snap, changed := f.now()
		if err := send(snap); err != nil {
			return err
		}
		f.mu.Lock()
		f.sent = &snap
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fakeSupervisor) Status(context.Context) (control.Status, error) {
	snap, _ := f.now()
	return snap.Status, nil
}

func (f *fakeSupervisor) Pending(context.Context) (control.Pending, error) {
	snap, _ := f.now()
	return control.Pending{Pending: snap.Pending}, nil
}

func (f *fakeSupervisor) Show(context.Context, string) (control.Detail, error) {
	return control.Detail{}, errors.New("not shown")
}

func (f *fakeSupervisor) Resume(_ context.Context, id string, at int64) (control.Result, error) {
	f.act("resume %s %d", id, at)
	return control.Result{ID: id, Outcome: "resumed"}, nil
}

func (f *fakeSupervisor) Dismiss(_ context.Context, id string, at int64) (control.Dismissed, error) {
	f.act("dismiss %s %d", id, at)
	return control.Dismissed{ID: id, Dismissed: 1}, nil
}

func (f *fakeSupervisor) Interrupt(_ context.Context, id string, at int64) (control.Interrupted, error) {
	f.act("interrupt %s %d", id, at)
	return control.Interrupted{ID: id}, nil
}

func (f *fakeSupervisor) Attach(context.Context, string) (control.Attachment, error) {
	return control.Attachment{}, errors.New("not attached")
}

func (f *fakeSupervisor) server(ctx context.Context, verb string) (control.Status, error) {
	f.act("%s", verb)
	return f.Status(ctx)
}

func (f *fakeSupervisor) StartServer(ctx context.Context) (control.Status, error) {
	return f.server(ctx, "start")
}

func (f *fakeSupervisor) StopServer(ctx context.Context) (control.Status, error) {
	return f.server(ctx, "stop")
}

func (f *fakeSupervisor) RestartServer(ctx context.Context) (control.Status, error) {
	return f.server(ctx, "restart")
}

func (f *fakeSupervisor) Logs(context.Context, io.Writer, int, bool) error { return nil }
