//go:build linux

package lab

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// says wants all of these words, wherever a command puts them.
func (r result) says(t *testing.T, exit int, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if r.exit != exit || !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("it exits with %d, not %d, or lacks %q: %v", r.exit, exit, want, r)
		}
	}
}

// TestServiceSaysWhy holds the service's commands to what a person hears where something is wrong.
func TestServiceSaysWhy(t *testing.T) {
	m, s := newInstalled(t, newVersion)
	s.run(t, "intermission status").says(t, 3, "no supervisor is running", ": intermission service install")
	s.run(t, "intermission service uninstall").says(t, 1, "the service is not installed\n")

	// A supervisor that was started by hand isn't given up for a service that isn't there.
	s.must(t, "setsid intermission run --quiet >/dev/null 2>&1 &")
	byHand := m.serving(t)
	s.run(t, "intermission service restart").says(t, 1, "not installed")
	if after := m.serving(t); after.Supervisor.PID != byHand.Supervisor.PID {
		t.Errorf("%+v became %+v", byHand, after)
	}
	s.run(t, "intermission service install").says(t, 0, "has left its server to it", "The server is running", "[server] settings take effect")
	s.run(t, "intermission service uninstall").says(t, 0, "is kept in")

	// No program: the service is there, and its server isn't.
	program := m.path(home + "/tools/bin/opencode")
	if err := os.Rename(program, program+".away"); err != nil {
		t.Fatal(err)
	}
	s.run(t, "intermission service install").says(t, 0, "Enabled it", "The server is not running (failed): cannot find the program", "intermission doctor")
	s.run(t, "intermission service restart").says(t, 0, "The server is not running (failed)", "intermission doctor")
	if err := os.Rename(program+".away", program); err != nil {
		t.Fatal(err)
	}
	s.must(t, "intermission start")
	m.serving(t)
	s.run(t, "intermission service restart").says(t, 0, "[server] settings take effect")
	before := m.serving(t)

	// A broken configuration: the supervisor that works stays.
	config := home + "/.config/intermission/config.toml"
	m.write(t, config, "[server]\nno_such = 1\n[resume]\nnor_such = 2\n", 0o644)
	for _, act := range []string{"restart", "install"} {
		s.run(t, "intermission service "+act).says(t, 1, "no_such", "nor_such")
	}
	if after := m.serving(t); after.Supervisor.PID != before.Supervisor.PID || after.Server.PID != before.Server.PID {
		t.Errorf("%+v became %+v", before, after)
	}
	// Killed, the next one comes all the same, for somebody has to guard what is unfinished:
	// it adopts, and says why it would start no server.
	m.must(t, "kill", "-KILL", strconv.Itoa(before.Supervisor.PID))
	eventually(t, "the reason in the status", func() error {
		if r := s.run(t, "intermission status"); r.exit != 0 || !strings.Contains(r.stdout, "nor_such") || !strings.Contains(r.stdout, "starts no server") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if after := m.serving(t); after.Supervisor.PID == before.Supervisor.PID || after.Server.PID != before.Server.PID {
		t.Errorf("%+v became %+v", before, after)
	}
	s.run(t, "intermission restart").says(t, 5, "nor_such", "not restarted")
	s.run(t, "intermission service stop").says(t, 0)
	s.run(t, "intermission service start").says(t, 1, "no_such", "nor_such")
	s.run(t, "intermission status").says(t, 3, ": intermission service start")
	if err := os.Remove(m.path(config)); err != nil {
		t.Fatal(err)
	}
	s.run(t, "intermission service start").says(t, 0, "running")
	m.serving(t)

	// What a stop suspends is told.
	m.begin(t, "one")
	s.run(t, "intermission stop").says(t, 0, "1 session was at work")
	s.must(t, "intermission start")
	m.serving(t)
	m.begin(t, "two")
	s.run(t, "intermission service stop").says(t, 0, "1 session that was at work")
	s.must(t, "intermission service start")
	m.serving(t)
	m.begin(t, "three")
	s.run(t, "intermission service uninstall").says(t, 0, "Suspended 1 session that was at work")

	// Without a login there is no manager of the user's to be asked.
	s.must(t, "intermission service install --no-start")
	s.logout(t)
	eventually(t, "the end of the user's manager", func() error {
		if r := m.withoutLogin("intermission", "service", "status"); !strings.Contains(r.stdout, "log in as "+userName) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if r := m.withoutLogin("intermission", "service", "status"); strings.Contains(r.stdout, "program") || strings.Contains(r.stdout, "not what this") {
		t.Errorf("it shows what it can't know: %v", r)
	}
	for _, act := range []string{"start", "stop", "uninstall"} {
		m.withoutLogin("intermission", "service", act).says(t, 1, "log in as "+userName, "enable-linger "+userName)
	}
}
