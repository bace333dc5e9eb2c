package service

import (
	"strings"
	"testing"

	"intermission/platform"
	"intermission/supervisor/control"
)

func TestStatusSaysWhatToDo(t *testing.T) {
	unit := platform.ServiceStatus{
		Installed: true, Kind: platform.SystemdUser, Definition: "/u/intermission.service", Program: "/usr/bin/intermission",
		Version: "1.2.3", Current: true, Enabled: true, State: "failed (failed)",
	}
	with := func(change func(*Status)) Status {
		st := Status{ServiceStatus: unit}
		change(&st)
		return st
	}
	for name, c := range map[string]struct {
		st       Status
		has, not []string
	}{
		"failed": {
			with(func(st *Status) { st.Failure = "config.toml:3: unknown key" }),
			[]string{"config.toml:3: unknown key", "start it with: intermission service start", "by itself at login"}, nil,
		},
		"system unit": {
			with(func(st *Status) {
				st.Kind, st.User, st.Enabled, st.Current = platform.SystemdSystem, "alice", false, false
			}),
			[]string{"not by itself", "sudo intermission service install --system --user alice"}, []string{"login"},
		},
		"system unit at boot": {with(func(st *Status) { st.Kind = platform.SystemdSystem }), []string{"by itself at boot"}, []string{"login"}},
		"no manager": {
			with(func(st *Status) { st.Unreachable, st.Program, st.Version, st.Current = true, "", "", false }),
			[]string{"systemd user unit"}, []string{"program", "not what this"},
		},
		"nothing, and no manager": {
			Status{ServiceStatus: platform.ServiceStatus{Unreachable: true, State: "not running: log in, or: intermission service install --linger"}},
			[]string{"intermission service install --linger"}, []string{"install it with"},
		},
		"newer program": {
			with(func(st *Status) { st.Supervisor = &control.SupervisorStatus{PID: 7, Version: "1.3.0"} }),
			[]string{"1.3.0"}, []string{"1.2.3", "update"},
		},
		"desktop": {with(func(st *Status) { st.Kind = platform.DesktopLogin }), []string{"not by ssh"}, nil},
		"server that fails": {
			with(func(st *Status) {
				st.Supervisor, st.Server, st.Reason = &control.SupervisorStatus{PID: 7}, "failed", "no program; install it"
			}),
			[]string{"failed\n", "no program; install it"}, nil,
		},
		"stopped": {with(func(st *Status) { st.Suspended = 2 }), []string{"2 sessions that were at work"}, nil},
	} {
		text := StatusText(c.st)
		for _, want := range c.has {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
		for _, not := range c.not {
			if strings.Contains(text, not) {
				t.Errorf("%s has %q:\n%s", name, not, text)
			}
		}
	}
}

func TestServerHints(t *testing.T) {
	for _, c := range []struct {
		st   control.ServerStatus
		want []string
	}{
		{control.ServerStatus{State: "running"}, nil},
		{control.ServerStatus{State: "running", Adopted: true}, []string{"[server] settings"}},
		{control.ServerStatus{State: "stopped"}, []string{"intermission start"}},
		{control.ServerStatus{State: "failed", Reason: "no program; install it"}, []string{"not running (failed): no program; install it", "intermission doctor"}},
		{control.ServerStatus{State: "blocked", Reason: "the disk is full; free some"}, []string{"(blocked)", "intermission doctor"}},
	} {
		got := serverHints(c.st)
		if len(got) != len(c.want) {
			t.Errorf("%+v: %q", c.st, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%+v: %q", c.st, got)
			}
		}
	}
}
