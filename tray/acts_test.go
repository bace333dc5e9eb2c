package tray

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/platform"
)

// fakeService is a system's service that says whether it is installed.
type fakeService struct {
	installed bool
	fails     bool
}

func (f fakeService) Status(context.Context) (platform.ServiceStatus, error) {
	if f.fails {
		return platform.ServiceStatus{}, errors.New("cannot tell")
	}
	return platform.ServiceStatus{Installed: f.installed}, nil
}

func init() { programs["commands"] = commandsProgram }

// commandsProgram stands in for our own program: it notes its arguments, and says what it is told to.
func commandsProgram() {
	f, err := os.OpenFile(os.Getenv("TEST_ASKED"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, strings.Join(os.Args[1:], " "))
	_ = f.Close()
	said, failure, _ := strings.Cut(os.Getenv("TEST_SAYS"), "|")
	fmt.Print(said)
	if failure != "" {
		fmt.Fprint(os.Stderr, failure)
		os.Exit(1)
	}
}

// TestSupervisorIsTheService: it is set up and started as the system's service, by
// our own commands, and run without one only where none is installed.
func TestSupervisorIsTheService(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "APPDATA", "LOCALAPPDATA"} {
		t.Setenv(name, home)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CONFIG_DIRS"} {
		t.Setenv(name, home+"/"+strings.ToLower(name))
	}
	t.Setenv(asProgram, "commands")
	const (
		install  = "service install --json\n"
		start    = "service start --json\n"
		run      = "run --quiet\n"
		reported = `{"kind":"systemd user unit","done":["It was started."],"next":[]}` + "\n"
		refused  = `{"error":{"code":"failed","message":"cannot install"}}` + "\n|intermission: not this"
	)
	stays := func(context.Context) (string, error) { return filepath.Join(home, "intermission"), nil }
	goes := func(context.Context) (string, error) { return "", &platform.TemporaryProgramError{Program: "/tmp/x"} }
	for _, c := range []struct {
		name            string
		verb            Verb
		service         fakeService
		stable          func(context.Context) (string, error)
		says            string
		asked           string
		outcome, reason string
		login           bool // the tray starts at login then
	}{
		{"set up", SetUp, fakeService{}, stays, reported, install, "", "", true},
		{"set up, with a hint", SetUp, fakeService{}, stays, `{"next":["The server is not running.","To look into it: intermission doctor"]}`, install, "set up", "The server is not running. To look into it: intermission doctor", true},
		{"an installation fails", SetUp, fakeService{}, stays, refused, install, "", "cannot install", false},
		{"it fails without JSON", SetUp, fakeService{}, stays, "|some\nintermission: no word of it\n", install, "", "no word of it", false},
		{"a build that goes away", SetUp, fakeService{}, goes, reported, "", "", "/tmp/x is a temporary file", false},
		{"at login", LoginOn, fakeService{}, stays, "", "", "", "", true},
		{"at login, a build that goes away", LoginOn, fakeService{}, goes, "", "", "", "/tmp/x is a temporary file", false},
		{"start", StartSupervisor, fakeService{installed: true}, stays, "{}", start, "", "", false},
		{"the service doesn't start", StartSupervisor, fakeService{installed: true}, stays, refused, start, "", "cannot install", false},
		{"no service", StartSupervisor, fakeService{}, stays, "|intermission: it runs already", run, "", "it runs already", false},
		{"no word of the service", StartSupervisor, fakeService{installed: true, fails: true}, stays, "|intermission: it runs already", run, "", "it runs already", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := filepath.Join(t.TempDir(), "asked")
			t.Setenv("TEST_ASKED", asked)
			t.Setenv("TEST_SAYS", c.says)
			a := actor{paths: platform.Paths{Log: t.TempDir(), Socket: home + "/none"}, self: os.Args[0], service: c.service, stable: c.stable}
			done := a.do(t.Context(), Action{Verb: c.verb})
			got, err := os.ReadFile(asked)
			if err != nil && !errors.Is(err, fs.ErrNotExist) || string(got) != c.asked {
				t.Errorf("it was asked to %q (%v), want %q", got, err, c.asked)
			}
			if c.reason == "" && done.Reason != "" || !strings.HasPrefix(done.Reason, c.reason) || done.Outcome != c.outcome {
				t.Errorf("%q, reason %q; want %q, %q", done.Outcome, done.Reason, c.outcome, c.reason)
			}
			entry := trayEntry(filepath.Join(home, "intermission"))
			if on, err := entry.Enabled(); err != nil || on != c.login {
				t.Errorf("starts at login: %v, %v", on, err)
			}
			if err := entry.Disable(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTemporaryProgramIsRefused: what stands in an entry is what the next login finds.
func TestTemporaryProgramIsRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := newActor(Config{Self: filepath.Join(os.TempDir(), "intermission")})
	if program, err := a.stable(t.Context()); !errors.As(err, new(*platform.TemporaryProgramError)) {
		t.Errorf("%q, %v", program, err)
	}
}

// TestWakeDrawsAnew: a wake is a moment to look at the time, and nothing else is.
func TestWakeDrawsAnew(t *testing.T) {
	t.Parallel()
	tr := &tray{ctx: t.Context(), inputs: make(chan Input, 8)}
	tr.attendWakes(func(_ context.Context, _ *slog.Logger, handle func(platform.PowerEvent)) {
		for _, e := range []platform.PowerEvent{platform.PowerSleep, platform.PowerShutdown, platform.PowerStays, platform.PowerWake} {
			handle(e)
		}
	})
	if len(tr.inputs) != 1 {
		t.Fatalf("%d inputs", len(tr.inputs))
	}
	in := <-tr.inputs
	if at := in.At; at.IsZero() || in != (Input{At: at}) {
		t.Errorf("got %+v", in)
	}
	s := linked(with(running(), stateOf("ses_a", "pending", "")))
	before, _ := Model(s)
	s, _ = Reduce(s, Input{At: noon.Add(8 * time.Hour)})
	if after, _ := Model(s); drawn(before) == drawn(after) {
		t.Error("its ages are those from before the sleep")
	}
}
