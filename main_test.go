package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// The test binary is the program too: scripts run it by its name.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"intermission": main})
}

// TestCommands runs the scripts of supervisor/control/testdata/commands. Beside testscript's own
// commands they have:
//
//	supervise            serve the control API, by a fake supervisor
//	retire               end it
//	status N command…    run a command that must exit with status N
//	acts act…            the acts that reached the supervisor, in their order
func TestCommands(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "supervisor/control/testdata/commands",
		Setup: func(e *testscript.Env) error {
			// Not the work directory, whose path is too long for a socket on some systems.
			runtime, err := os.MkdirTemp("", "run")
			if err != nil {
				return err
			}
			e.Defer(func() { _ = os.RemoveAll(runtime) })
			e.Setenv("INTERMISSION_RUNTIME_DIR", runtime)
			e.Setenv("INTERMISSION_STATE_DIR", filepath.Join(e.WorkDir, "state"))
			e.Setenv("INTERMISSION_CONFIG", filepath.Join(e.WorkDir, "config.toml"))
			e.Values["supervisor"] = &fakeSupervisor{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"supervise": supervise,
			"retire":    func(ts *testscript.TestScript, _ bool, _ []string) { fakeOf(ts).retire() },
			"status":    wantStatus,
			"acts": func(ts *testscript.TestScript, _ bool, want []string) {
				if got := fakeOf(ts).acts(); !slices.Equal(want, got) {
					ts.Fatalf("acts: %q, want %q", got, want)
				}
			},
		},
	})
}

func wantStatus(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func supervise(ts *testscript.TestScript, _ bool, _ []string) {
	paths, err := platform.FindPaths(ts.Getenv)
	ts.Check(err)
	l, err := platform.Listen(paths.Socket)
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	f := fakeOf(ts)
	go func() { served <- control.NewServer(f, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	f.retire = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			ts.Logf("the fake supervisor: %v", err)
		}
	})
	ts.Defer(f.retire)
}

func fakeOf(ts *testscript.TestScript) *fakeSupervisor {
	return ts.Value("supervisor").(*fakeSupervisor)
}

// suspendedAt is the time of each suspension of the fake supervisor.
const suspendedAt = 1790000000000

// fakeSupervisor has one pending session for each outcome of a resume, named by it.
type fakeSupervisor struct {
	control.Backend
	retire func()
	mu     sync.Mutex
	acted  []string
}

func (f *fakeSupervisor) act(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acted = append(f.acted, fmt.Sprintf(format, args...))
}

func (f *fakeSupervisor) acts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acted
}

func (f *fakeSupervisor) sessions() []control.Suspension {
	var list []control.Suspension
	for _, outcome := range []string{"resumed", "queued", "already", "refused", "unknown", "novel", "denied", "settled"} {
		list = append(list, control.Suspension{
			ID: "ses_" + outcome, Title: "Fix <b>&</b> it", Directory: "/home/ann/shop", SuspendedAt: suspendedAt,
			Cause: restart.CauseCrash, State: restart.StatePending,
			LastPrompt: &restart.Prompt{Text: "the button does nothing", At: suspendedAt - 1000},
			LastTool:   &restart.Tool{Name: "write", Input: "login.ts", Status: "running"},
		})
	}
	return list
}

func (f *fakeSupervisor) find(id string) (control.Suspension, error) {
	var found []control.Suspension
	for _, s := range f.sessions() {
		if strings.HasPrefix(s.ID, id) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return control.Suspension{}, &control.Error{Code: control.CodeNotPending, Message: "no session " + id + " was suspended; see: intermission pending"}
	case 1:
		return found[0], nil
	}
	return control.Suspension{}, &control.Error{Code: control.CodeAmbiguous, Message: id + " may be several; write more of the id"}
}

func (f *fakeSupervisor) Status(context.Context) (control.Status, error) {
	return control.Status{
		Supervisor: control.SupervisorStatus{PID: 1, Version: "0.1.0", Since: time.UnixMilli(suspendedAt).UTC()},
		Server:     control.ServerStatus{State: "running", Desired: "running", Generation: "v2", Version: "2.2.0", PID: 2, URL: "http://127.0.0.1:3", Incarnation: "i"},
		Sessions:   control.SessionStatus{Active: []string{"ses_x"}, Pending: 8},
	}, nil
}

func (f *fakeSupervisor) Pending(context.Context) (control.Pending, error) {
	return control.Pending{Pending: f.sessions()[:1]}, nil
}

func (f *fakeSupervisor) Show(_ context.Context, id string) (control.Detail, error) {
	s, err := f.find(id)
	entry := control.Entry{Time: time.UnixMilli(suspendedAt).UTC(), SuspendedAt: suspendedAt, What: "suspended", Detail: "crash"}
	return control.Detail{Suspension: s, Pending: s.ID != "ses_settled", Journal: []control.Entry{entry}}, err
}

func (f *fakeSupervisor) Resume(_ context.Context, id string, at int64) (control.Result, error) {
	f.act("resume %s %d", id, at)
	switch id {
	case "ses_denied":
		return control.Result{}, &control.Error{Code: control.CodeRefused, Message: "the server is down; start it with: intermission start"}
	case "ses_settled":
		return control.Result{}, &control.Error{Code: control.CodeNotPending, Message: id + " is not pending any more"}
	}
	return control.Result{ID: id, Outcome: strings.TrimPrefix(id, "ses_")}, nil
}

func (f *fakeSupervisor) Dismiss(_ context.Context, id string, at int64) (control.Dismissed, error) {
	f.act("dismiss %s %d", id, at)
	return control.Dismissed{ID: id, Dismissed: 2}, nil
}

func (f *fakeSupervisor) Interrupt(_ context.Context, id string, at int64) (control.Interrupted, error) {
	f.act("interrupt %s %d", id, at)
	if id != "ses_x" || at != 0 && at != suspendedAt {
		return control.Interrupted{}, &control.Error{Code: control.CodeNotPending, Message: "no session " + id + " is at work; see: intermission status"}
	}
	return control.Interrupted{ID: id}, nil
}

// Attach gives a shell in OpenCode's place, which does what the session's id says.
func (f *fakeSupervisor) Attach(context.Context, string) (control.Attachment, error) {
	return control.Attachment{}, errors.New("not attached")
}

func (f *fakeSupervisor) StartServer(ctx context.Context) (control.Status, error) {
	f.act("start")
	return f.Status(ctx)
}

func (f *fakeSupervisor) StopServer(ctx context.Context) (control.Status, error) {
	f.act("stop")
	return f.Status(ctx)
}

func (f *fakeSupervisor) RestartServer(context.Context) (control.Status, error) {
	f.act("restart")
	return control.Status{}, errors.New("cannot stop the server: it ignores every signal")
}

func (f *fakeSupervisor) Logs(ctx context.Context, w io.Writer, n int, follow bool) error {
	_, err := fmt.Fprintf(w, "n=%d follow=%v\n\x1b[31mred\x1b[0m\n", n, follow)
	return err
}

func TestColour(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		terminal bool
		env      map[string]string
		want     bool
	}{
		{true, nil, true},
		{false, nil, false},
		{true, map[string]string{"NO_COLOR": "1"}, false},
		{true, map[string]string{"TERM": "dumb"}, false},
	} {
		s := &surroundings{shows: tc.terminal, getenv: func(k string) string { return tc.env[k] }}
		if got := s.text().Color; got != tc.want {
			t.Errorf("terminal %v, environment %v: %v", tc.terminal, tc.env, got)
		}
	}
}

// Logs on a terminal must not steer it; elsewhere they are as they are.
func TestLogsOnATerminal(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "run")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	env := map[string]string{"INTERMISSION_RUNTIME_DIR": dir, "INTERMISSION_STATE_DIR": dir, "INTERMISSION_CONFIG": filepath.Join(dir, "c")}
	getenv := func(k string) string { return env[k] }
	paths, err := platform.FindPaths(getenv)
	if err != nil {
		t.Fatal(err)
	}
	l, err := platform.Listen(paths.Socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- control.NewServer(&fakeSupervisor{}, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	defer func() { cancel(); <-served }()
	for shows, want := range map[bool]string{
		true:  "n=5 follow=false\nred\n",
		false: "n=5 follow=false\n\x1b[31mred\x1b[0m\n",
	} {
		var out, errs strings.Builder
		if status := execute([]string{"logs", "-n", "5"}, &surroundings{stdout: &out, stderr: &errs, getenv: getenv, shows: shows}); status != 0 {
			t.Fatal(status, errs.String())
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("terminal %v: %s", shows, diff)
		}
	}
}
