package tray

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"intermission/platform"
)

// fakeService is a system's service that says what it was asked, and fails at one step.
type fakeService struct {
	asked     []string
	installed bool
	fails     string
}

func (f *fakeService) step(what string) error {
	f.asked = append(f.asked, what)
	if f.fails == what {
		return errors.New("cannot " + what)
	}
	return nil
}

func (f *fakeService) Install(context.Context, platform.ServiceOptions) (platform.ServiceReport, error) {
	err := f.step("install")
	f.installed = err == nil
	return platform.ServiceReport{}, err
}

func (f *fakeService) Start(context.Context) error { return f.step("start") }

func (f *fakeService) Status(context.Context) (platform.ServiceStatus, error) {
	return platform.ServiceStatus{Installed: f.installed}, f.step("status")
}

// TestSupervisorIsTheService: it is set up and started as the system's service, and
// run without one only where none is installed.
func TestSupervisorIsTheService(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "APPDATA", "LOCALAPPDATA"} {
		t.Setenv(name, home)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CONFIG_DIRS"} {
		t.Setenv(name, home+"/"+strings.ToLower(name))
	}
	for _, c := range []struct {
		name    string
		verb    Verb
		service fakeService
		asked   []string
		reason  string
		login   bool // the tray starts at login then
	}{
		{"set up", SetUp, fakeService{}, []string{"install", "start"}, "", true},
		{"an installation fails", SetUp, fakeService{fails: "install"}, []string{"install"}, "cannot install", false},
		{"its start fails", SetUp, fakeService{fails: "start"}, []string{"install", "start"}, "cannot start", true},
		{"start", StartSupervisor, fakeService{installed: true}, []string{"status", "start"}, "", true},
		{"the service doesn't start", StartSupervisor, fakeService{installed: true, fails: "start"}, []string{"status", "start"}, "cannot start", true},
		{"no service", StartSupervisor, fakeService{}, []string{"status"}, "no such file", true},
		{"no word of the service", StartSupervisor, fakeService{installed: true, fails: "status"}, []string{"status"}, "no such file", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			self := home + "/nowhere/intermission" // what is spawned isn't there
			a := actor{paths: platform.Paths{Log: t.TempDir(), Socket: home + "/none"}, self: self, service: &c.service}
			done := a.do(t.Context(), Action{Verb: c.verb})
			if !slices.Equal(c.service.asked, c.asked) {
				t.Errorf("it was asked to %v, want %v", c.service.asked, c.asked)
			}
			if c.reason == "" && done.Reason != "" || !strings.Contains(done.Reason, c.reason) {
				t.Errorf("reason %q, want %q", done.Reason, c.reason)
			}
			if c.verb != SetUp {
				return
			}
			if on, err := trayEntry(self).Enabled(); err != nil || on != c.login {
				t.Errorf("starts at login: %v, %v", on, err)
			}
			if err := trayEntry(self).Disable(); err != nil {
				t.Error(err)
			}
		})
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
