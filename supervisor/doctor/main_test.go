package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
	"intermission/supervisor/devserver"
)

// asServer makes this test binary a managed server instead.
const asServer = "INTERMISSION_DOCTOR_TEST_SERVER"

// asVersion makes it a program that prints a version.
const asVersion = "INTERMISSION_DOCTOR_TEST_VERSION"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asVersion) != "":
		fmt.Println(os.Getenv(asVersion))
		return
	case os.Getenv(asServer) != "":
		os.Exit(devserver.Main(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
	}
	// The supervisor's handle on the server's database is kept to the end of the process.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// home is a person's home in which the doctor looks around.
type home struct {
	t     testing.TB
	dir   string
	env   map[string]string // of the doctor and, as its Process, of the server
	paths platform.Paths
	o     Options
}

func newHome(t testing.TB) *home {
	t.Helper()
	// Sockets have short paths, test names don't.
	dir, err := os.MkdirTemp("", "doctor")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &home{t: t, dir: dir, env: map[string]string{
		"HOME": dir, "PATH": os.Getenv("PATH"), "APPDATA": dir, "LOCALAPPDATA": dir,
		"INTERMISSION_STATE_DIR": filepath.Join(dir, "state"), "INTERMISSION_RUNTIME_DIR": filepath.Join(dir, "run"),
		"INTERMISSION_CONFIG": filepath.Join(dir, "config.toml"),
	}}
	h.paths, err = platform.FindPaths(func(name string) string { return h.env[name] })
	must(t, err)
	h.o = Options{
		Version: "1.2.3", Program: "/nowhere/intermission", Getenv: func(name string) string { return h.env[name] },
		Built: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Clock: func() (bool, error) { return true, nil },
		User:  func() User { return User{} },
		Entry: &platform.Autostart{Name: "intermission-doctor-test-" + filepath.Base(dir)},
	}
	h.config("")
	return h
}

// config writes the configuration, with this binary as the server's program.
func (h *home) config(more string) {
	h.t.Helper()
	self, err := os.Executable()
	must(h.t, err)
	text := fmt.Sprintf("[server]\ncommand = [%q, \"serve\", \"--service\"]\nenvironment = { %s = \"1\" }\n%s", self, asServer, more)
	h.write("config.toml", text)
}

// write makes a file below the home directory and gives its path.
func (h *home) write(name, text string) string {
	h.t.Helper()
	path := filepath.Join(h.dir, name)
	must(h.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(h.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// process is the environment that the server is made of.
func (h *home) process() (env []string) {
	for name, value := range h.env {
		env = append(env, name+"="+value)
	}
	return env
}

func (h *home) run() Report {
	h.t.Helper()
	h.o.Process = h.process()
	return Run(h.t.Context(), h.o)
}

// check makes one check alone.
func (h *home) check(name string) Check {
	h.t.Helper()
	h.o.Process = h.process()
	ctx, cancel := context.WithTimeout(h.t.Context(), deadline)
	defer cancel()
	p := newPatient(ctx, h.o)
	for _, e := range examinations {
		if e.name == name {
			return p.perform(ctx, e)
		}
	}
	h.t.Fatalf("there is no check %q", name)
	return Check{}
}

// finds makes sure of a check's state and that its line holds words. What isn't ok
// must have an act, and what is must have none.
func (h *home) finds(name string, state State, words ...string) Check {
	h.t.Helper()
	c := h.check(name)
	if c.State != state {
		h.t.Errorf("%s is %s, not %s: %s → %s", name, c.State, state, c.Detail, c.Act)
	}
	if needs := c.State == Warning || c.State == Failed; needs != (c.Act != "") {
		h.t.Errorf("%s is %s, and its act is %q", name, c.State, c.Act)
	}
	for _, w := range words {
		if !strings.Contains(c.Detail+" → "+c.Act, w) {
			h.t.Errorf("%s doesn't say %q: %s → %s", name, w, c.Detail, c.Act)
		}
	}
	return c
}

// supervise runs a supervisor until the test ends, or the function is called; its
// server is up.
func (h *home) supervise(state string) (client *control.Client, stop func()) {
	h.t.Helper()
	config, err := supervisor.LoadConfig(h.paths.ConfigFile)
	must(h.t, err)
	config.Server.ReadyTimeout, config.Server.StopTimeout = 20*time.Second, 8*time.Second
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- supervisor.Run(ctx, supervisor.Options{
			Version: "1.2.3", Paths: h.paths, Config: config, Environ: h.process(),
			Log:   slog.New(slog.NewTextHandler(h.t.Output(), nil)),
			Power: func(context.Context, *slog.Logger, func(platform.PowerEvent)) {}, // what this machine does is no part of it
		})
	}()
	client = control.Dial(h.paths.Socket)
	done := false
	stop = func() {
		if done {
			return
		}
		done = true
		end()
		if err := <-ended; err != nil {
			h.t.Errorf("the supervisor: %v", err)
		}
		client.Close()
	}
	h.t.Cleanup(stop)
	h.until("the server is "+state, func() bool {
		st, err := client.Status(h.t.Context())
		return err == nil && st.Server.State == state
	})
	return client, stop
}

// until waits until it is so, for at most 30 s.
func (h *home) until(what string, so func() bool) {
	h.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		if time.Now().After(deadline) {
			h.t.Fatalf("never came: %s", what)
		}
		<-tick.C
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
