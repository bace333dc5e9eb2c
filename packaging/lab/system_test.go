//go:build linux

package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSystemUnit is the service that an administrator installs for a user: it runs
// from boot on, and as that user.
func TestSystemUnit(t *testing.T) {
	m := newMachine(t)
	m.installPackage(t, newVersion)
	m.installOpenCode(t)
	before := m.below(t, "/etc/systemd", "/root/.config", "/var/lib/systemd/linger")
	for _, args := range [][]string{
		{"service", "install"},
		{"service", "install", "--system"},
		{"service", "install", "--system", "--user", "root"},
		{"service", "install", "--system", "--user", "nobody-of-this-name"},
	} {
		if r := m.root(append([]string{"intermission"}, args...)...); r.exit == 0 || r.stderr == "" {
			t.Errorf("%q as root: %v", args, r)
		}
	}
	if after := m.below(t, "/etc/systemd", "/root/.config", "/var/lib/systemd/linger"); !slices.Equal(before, after) {
		t.Errorf("refused installations have left %q, there was %q", after, before)
	}

	m.must(t, "intermission", "service", "install", "--system", "--user", userName)
	m.must(t, "intermission", "service", "start")
	st := m.serving(t)
	m.runsAsUser(t, st)
	one, two := m.begin(t, "one"), m.begin(t, "two")
	requests := len(m.requests(t))
	files := m.below(t, "/etc/systemd")
	m.must(t, "intermission", "service", "install", "--system", "--user", userName)
	if after := m.below(t, "/etc/systemd"); !slices.Equal(files, after) {
		t.Errorf("another installation has changed %q to %q", files, after)
	}
	if after := m.serving(t); after.Supervisor.PID != st.Supervisor.PID || after.Server.PID != st.Server.PID {
		t.Errorf("over another installation %+v became %+v", st, after)
	}
	// The user needs no rights of root's to have the supervisor replaced.
	if r := m.user("intermission", "service", "restart"); r.exit != 0 {
		t.Errorf("restart by the user: %v", r)
	}
	m.statusWhen(t, "the next supervisor", func(now status) error {
		if now.Supervisor.PID == st.Supervisor.PID || now.Server.PID != st.Server.PID || len(now.Sessions.Active) != 2 {
			return fmt.Errorf("before it was %+v", st)
		}
		return nil
	})
	m.quiet(t, requests)

	m.reboot(t)
	m.runsAsUser(t, m.serving(t))
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", one, two)
	wantOrder(t, m.journal(t, -1),
		"systemd-logind: The system will ",
		`intermission: msg="the machine's power" event=shutdown`,
		"systemd-logind: System is ",
		"intermission: the server is stopping",
		"intermission: the server is stopped",
		"systemd: Stopped intermission.service")
	m.resumeOne(t, one)

	// Root isn't answered by another's supervisor, and can only have it end in order.
	if got := m.must(t, "intermission", "service", "status"); !strings.Contains(got, "as "+userName+": intermission status") || !strings.Contains(got, "by itself at boot") {
		t.Errorf("root is told of the supervisor: %s", got)
	}
	three := m.begin(t, "three")
	requests = len(m.requests(t))
	m.must(t, "intermission", "service", "restart")
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", two, three)
	m.must(t, "intermission", "service", "uninstall")
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the uninstallation", left)
	}
	if after := m.below(t, "/etc/systemd"); strings.Contains(strings.Join(after, "\n"), "intermission") {
		t.Errorf("the uninstallation has left %q", after)
	}
}

// runsAsUser wants supervisor and server to be the user's.
func (m *machine) runsAsUser(t *testing.T, st status) {
	t.Helper()
	pids := strconv.Itoa(st.Supervisor.PID) + "," + strconv.Itoa(st.Server.PID)
	want := []string{strconv.Itoa(m.uid), strconv.Itoa(m.uid)}
	if got := strings.Fields(m.must(t, "ps", "-o", "uid=", "-p", pids)); !slices.Equal(got, want) {
		t.Errorf("supervisor and server run as %q, not as %q", got, want)
	}
}
