//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// toldFile is where a tool writes each time when it is told to end.
const toldFile = home + "/told"

// TestReboot is the story of the product: a machine that reboots while sessions are
// at work, and nobody's consent.
func TestReboot(t *testing.T) {
	m, s := newInstalled(t, newVersion)
	s.serviceUp(t, "--linger")
	one, two := m.begin(t, "one"), m.begin(t, "two")
	requests := len(m.requests(t))

	m.reboot(t)
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", one, two)
	m.unitIs(t, "StatusText", "running, 2 sessions pending")
	wantOrderedEnd(t, m)
	wantForeseen(t, m)
	m.resumeOne(t, one)
	m.wantPending(t, "shutdown", two)

	// A server that takes its time gets it: the supervisor alone is told to stop, and
	// not, in the same moment, all that works for a session.
	m.fault(t, "slow-stop=4s")
	three := m.prompt(t, "three", "[[shell trap 'date +%s%3N >>"+toldFile+"' TERM; while :; do sleep 0.1; done]]")
	eventually(t, "a tool at work", func() error {
		if r := m.root("pgrep", "-f", toldFile); r.exit != 0 {
			return errors.New("it doesn't run")
		}
		return nil
	})
	requests = len(m.requests(t))
	if took := m.poweroff(t); took < 4*time.Second || took > 15*time.Second {
		t.Errorf("with a server that takes four seconds the machine took %v to go down", took)
	}
	m.fault(t, "")
	m.boot(t)
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", two, three)
	wantOrderedEnd(t, m)
	wantToldLast(t, m)

	// One that doesn't end by itself is killed, well before systemd would do that to us.
	m.write(t, home+"/.config/intermission/config.toml", "[server]\nstop_timeout = \"5s\"\n", 0o600)
	m.must(t, "systemctl", "restart", fmt.Sprintf("user@%d.service", m.uid))
	m.serving(t)
	m.fault(t, "ignore-term,ignore-stop")
	four := m.begin(t, "four")
	requests = len(m.requests(t))
	if took := m.poweroff(t); took > 20*time.Second {
		t.Errorf("with a server that has to be killed after five seconds the machine took %v to go down", took)
	}
	m.fault(t, "")
	m.boot(t)
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", two, three, four)
	wantOrderedEnd(t, m)
}

// wantOrderedEnd holds the last boot's journal to the order in which everything has
// to end: logind announces and waits, and the supervisor alone is told to stop.
func wantOrderedEnd(t *testing.T, m *machine) {
	t.Helper()
	wantOrder(t, m.journal(t, -1),
		"systemd-logind: The system will ",
		`intermission: msg="the machine's power" event=shutdown`,
		"systemd-logind: System is ",
		"intermission: the server is stopping",
		"intermission: the server is stopped",
		"systemd: Stopped intermission.service",
		fmt.Sprintf("systemd: Stopped user@%d.service", m.uid),
	)
}

// wantForeseen wants the suspensions to have been written down while the machine waited for that, before anything was stopped.
func wantForeseen(t *testing.T, m *machine) {
	t.Helper()
	var answer struct{ Pending []suspension }
	if err := m.ask(&answer, "pending"); err != nil {
		t.Fatal(err)
	}
	for _, e := range m.journal(t, -1) {
		if e.who != "systemd-logind" || !strings.Contains(e.message, "System is ") {
			continue
		}
		for _, p := range answer.Pending {
			if p.SuspendedAt > e.at {
				t.Errorf("%s was written down %d ms after the machine began to stop", p.ID, p.SuspendedAt-e.at)
			}
		}
	}
}

// wantToldLast wants the tool to have been told to end by its server, after the four seconds that this one takes.
func wantToldLast(t *testing.T, m *machine) {
	t.Helper()
	text, err := os.ReadFile(m.path(toldFile))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	told, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range m.journal(t, -1) {
		if e.who == "intermission" && strings.Contains(e.message, "the server is stopping") && told < e.at+3000 {
			t.Errorf("the tool was told to end %d ms after the stop began, before its server had its time", told-e.at)
		}
	}
}
