//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// newInstalled is a machine on which an administrator has installed the package,
// and on which the user has logged in.
func newInstalled(t *testing.T, version string) (*machine, *session) {
	t.Helper()
	m := newMachine(t)
	m.installPackage(t, version)
	m.installOpenCode(t)
	return m, m.login(t)
}

// serviceUp has the user install and start the service, and waits until its server runs.
func (s *session) serviceUp(t *testing.T, flags string) status {
	t.Helper()
	s.must(t, "intermission service install "+flags)
	s.must(t, "intermission service start")
	return s.m.serving(t)
}

// TestService is the service as a user of the package has it, from the installation
// on, over the deaths of the supervisor, to its removal.
func TestService(t *testing.T) {
	m, s := newInstalled(t, newVersion)
	for _, flow := range []struct {
		name string
		run  func(*testing.T, *machine, *session)
	}{
		{"installed", installed},
		{"environment", environment},
		{"installed again", installedAgain},
		{"from su", fromSu},
		{"killed", killed},
		{"crashed", crashed},
		{"stuck", stuck},
		{"handed over", handedOver},
		{"stopped", stopped},
		{"stopped after a death", stoppedAfterADeath},
		{"uninstalled", uninstalled},
	} {
		if !t.Run(flow.name, func(t *testing.T) { flow.run(t, m, s) }) {
			break // the next would only repeat it
		}
	}
}

func installed(t *testing.T, m *machine, s *session) {
	r := s.run(t, "intermission service status")
	if r.exit != 3 || !strings.Contains(r.stdout, "not installed") {
		t.Errorf("before the installation: %v", r)
	}
	st := s.serviceUp(t, "")
	for property, want := range map[string]string{
		"Type": "notify", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled", "KillMode": "process",
		"OOMPolicy": "continue", "MainPID": strconv.Itoa(st.Supervisor.PID), "NRestarts": "0",
	} {
		if got := m.unit(property); got != want {
			t.Errorf("%s is %q, not %q", property, got, want)
		}
	}
	m.unitIs(t, "StatusText", "running")
	uids := m.must(t, "ps", "-o", "uid=", "-p", fmt.Sprintf("%d,%d", st.Supervisor.PID, st.Server.PID))
	if got := strings.Fields(uids); !slices.Equal(got, []string{strconv.Itoa(m.uid), strconv.Itoa(m.uid)}) {
		t.Errorf("supervisor and server run as %q, not both as %d", got, m.uid)
	}
	var known struct {
		Installed, Enabled, Running, Current bool
		PID                                  int
		Version                              string
	}
	if err := m.ask(&known, "service", "status"); err != nil || !known.Installed || !known.Enabled || !known.Running || !known.Current ||
		known.PID != st.Supervisor.PID || known.Version != newVersion {
		t.Errorf("service status: %+v, %v; status: %+v", known, err, st)
	}
}

// environment holds that the server works in what the user's login shell has, and hears nothing of the manager.
func environment(t *testing.T, m *machine, s *session) {
	env := m.environ(t, m.serving(t).Server.PID)
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID"} {
		if value, set := env[name]; set {
			t.Errorf("the server has what its supervisor has of systemd: %s=%s", name, value)
		}
	}
	if want := s.must(t, `printf %s "$PATH"`); env["PATH"] != want && !strings.HasPrefix(env["PATH"], want+":") {
		t.Errorf("the server's PATH is %q, the login shell's %q", env["PATH"], want)
	}
	if want := s.must(t, `printf %s "$LAB_MARK"`); env["LAB_MARK"] != want || want == "" {
		t.Errorf("the server has LAB_MARK=%q, the login shell %q", env["LAB_MARK"], want)
	}
}

func installedAgain(t *testing.T, m *machine, s *session) {
	before, st := m.definitions(t), m.serving(t)
	s.must(t, "intermission service install")
	if after := m.definitions(t); !slices.Equal(before, after) {
		t.Errorf("the definitions changed from %q to %q", before, after)
	}
	if after := m.serving(t); after.Supervisor.PID != st.Supervisor.PID || after.Server.PID != st.Server.PID {
		t.Errorf("%+v became %+v", st, after)
	}
}

// fromSu is the service from a shell that no login has started: it has no runtime
// directory, and another PATH.
func fromSu(t *testing.T, m *machine, _ *session) {
	st := m.serving(t)
	for _, args := range [][]string{{"service", "install"}, {"service", "start"}, {"service", "status"}, {"status"}, {"pending"}} {
		if r := m.withoutLogin(append([]string{"intermission"}, args...)...); r.exit != 0 {
			t.Errorf("%q: %v", args, r)
		}
	}
	if after := m.serving(t); after.Supervisor.PID != st.Supervisor.PID || after.Server.PID != st.Server.PID {
		t.Errorf("%+v became %+v", st, after)
	}
}

// definitions lists what defines services of the user's: files with their contents and times, and links.
func (m *machine) definitions(t *testing.T) []string {
	t.Helper()
	return m.below(t, home+"/.config")
}

// below lists what is in directories of the machine's.
func (m *machine) below(t *testing.T, dirs ...string) []string {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		err := filepath.WalkDir(m.path(dir), func(path string, entry os.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil || entry.IsDir() {
				return err
			}
			target, _ := os.Readlink(path) // "" for what is no link
			all = append(all, fmt.Sprintln(strings.TrimPrefix(path, m.path("/")), info.Mode(), info.Size(), info.ModTime(), target))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// outlive has a supervisor die under a session at work: the next one adopts the
// server, and the session goes on as if nothing had been.
func outlive(t *testing.T, m *machine, die func(before status)) {
	t.Helper()
	before := m.serving(t)
	id := m.begin(t, "outlives-"+strconv.Itoa(before.Supervisor.PID))
	requests := len(m.requests(t))
	die(before)
	m.statusWhen(t, "another supervisor that has adopted the server", func(st status) error {
		if st.Supervisor.PID == before.Supervisor.PID || st.Server.PID != before.Server.PID || !st.Server.Adopted ||
			st.Server.State != "running" || !slices.Contains(st.Sessions.Active, id) || st.Sessions.Pending != 0 {
			return fmt.Errorf("before were supervisor %d and server %d", before.Supervisor.PID, before.Server.PID)
		}
		return nil
	})
	m.unitIs(t, "ActiveState", "active")
	m.unitIs(t, "StatusText", "running")
	m.quiet(t, requests)
	if got := m.servers(); !slices.Equal(got, []string{strconv.Itoa(before.Server.PID)}) {
		t.Errorf("servers %v run, not only %d", got, before.Server.PID)
	}
	if active, err := m.active(); err != nil || !active[id] {
		t.Errorf("the session doesn't go on: %v, %v", active, err)
	}
	if err := m.call("POST", "/api/session/"+id+"/interrupt", nil, nil); err != nil {
		t.Error(err)
	}
}

func killed(t *testing.T, m *machine, _ *session) {
	outlive(t, m, func(before status) { m.must(t, "kill", "-KILL", strconv.Itoa(before.Supervisor.PID)) })
}

func crashed(t *testing.T, m *machine, _ *session) {
	outlive(t, m, func(before status) { m.must(t, "kill", "-ABRT", strconv.Itoa(before.Supervisor.PID)) })
}

// stuck is a supervisor that does nothing any more: the watchdog ends it.
func stuck(t *testing.T, m *machine, s *session) {
	dropIn := home + "/.config/systemd/user/intermission.service.d/lab.conf"
	m.write(t, dropIn, "[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n", 0o644)
	outlive(t, m, func(before status) {
		s.must(t, "systemctl --user daemon-reload")
		s.must(t, "intermission service restart") // it learns of its watchdog at its start
		m.statusWhen(t, "a supervisor with a watchdog of two seconds", func(st status) error {
			if st.Supervisor.PID == before.Supervisor.PID || m.unit("WatchdogUSec") != "2s" {
				return errors.New("it is the old one")
			}
			return nil
		})
		watched := m.serving(t)
		always(t, 3*time.Second, "a supervisor that isn't stuck", func() error {
			if got := m.unit("MainPID"); got != strconv.Itoa(watched.Supervisor.PID) {
				return fmt.Errorf("it was ended; its successor is %s", got)
			}
			return nil
		})
		m.must(t, "kill", "-STOP", strconv.Itoa(watched.Supervisor.PID))
		eventually(t, "the end of the stuck supervisor", func() error {
			if got := m.unit("MainPID"); got == strconv.Itoa(watched.Supervisor.PID) || got == "0" {
				return errors.New("it is still there")
			}
			return nil
		})
	})
	if err := os.Remove(m.path(dropIn)); err != nil {
		t.Error(err)
	}
	s.must(t, "systemctl --user daemon-reload")
}

func handedOver(t *testing.T, m *machine, s *session) {
	outlive(t, m, func(status) { s.must(t, "intermission service restart") })
}

// stopped is a stop in order under a session at work, and a start after it.
func stopped(t *testing.T, m *machine, s *session) {
	id := m.begin(t, "stopped")
	requests := len(m.requests(t))
	s.must(t, "intermission service stop")
	m.unitIs(t, "ActiveState", "inactive")
	m.unitIs(t, "Result", "success")
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the stop", left)
	}
	s.must(t, "intermission service start")
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", id)
	m.unitIs(t, "StatusText", "running, 1 session pending")
	m.resumeOne(t, id)
	m.wantPending(t, "shutdown")
	m.unitIs(t, "StatusText", "running")
}

// stoppedAfterADeath is a stop before systemd has started the next supervisor: the
// server that was left is stopped in order too.
func stoppedAfterADeath(t *testing.T, m *machine, s *session) {
	dropIn := home + "/.config/systemd/user/intermission.service.d/lab.conf"
	m.write(t, dropIn, "[Service]\nRestartSec=600\n", 0o644)
	s.must(t, "systemctl --user daemon-reload")
	before := m.serving(t)
	id := m.begin(t, "left")
	requests := len(m.requests(t))
	m.must(t, "kill", "-KILL", strconv.Itoa(before.Supervisor.PID))
	m.unitIs(t, "SubState", "auto-restart")
	s.must(t, "intermission service stop")
	m.unitIs(t, "ActiveState", "inactive")
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the stop", left)
	}
	if err := os.Remove(m.path(dropIn)); err != nil {
		t.Error(err)
	}
	s.must(t, "systemctl --user daemon-reload")
	s.must(t, "intermission service start")
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", id)
	m.resumeOne(t, id)
	m.wantPending(t, "shutdown")
}

// uninstalled is the end of the service: the ledger stays, until it is given up too.
func uninstalled(t *testing.T, m *machine, s *session) {
	id := m.begin(t, "uninstalled")
	requests := len(m.requests(t))
	s.must(t, "intermission service uninstall")
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the uninstallation", left)
	}
	if state := m.unit("UnitFileState"); state == "enabled" {
		t.Error("the unit is still enabled")
	}
	m.unitIs(t, "ActiveState", "inactive")
	s.serviceUp(t, "")
	m.wantPending(t, "shutdown", id)
	m.quiet(t, requests)
	s.must(t, "intermission service uninstall --purge --yes")
	if left := m.below(t, home+"/.local/state/intermission"); len(left) > 0 {
		t.Errorf("after --purge is left: %q", left)
	}
	for _, line := range m.definitions(t) {
		if strings.Contains(line, "intermission") {
			t.Errorf("after --purge is left: %s", line)
		}
	}
}
