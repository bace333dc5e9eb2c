//go:build linux

package lab

import (
	"errors"
	"fmt"
	"testing"
)

// TestLogout is what becomes of sessions at work when their user logs out.
func TestLogout(t *testing.T) {
	m, s := newInstalled(t, newVersion)
	s.serviceUp(t, "")
	one := m.begin(t, "one")
	requests := len(m.requests(t))

	// Without lingering the user's manager ends, and so do we, in order.
	s.logout(t)
	manager := fmt.Sprintf("user@%d.service", m.uid)
	eventually(t, "the end of the user's manager", func() error {
		if r := m.root("systemctl", "is-active", manager); r.exit == 0 {
			return errors.New("it is active")
		}
		return nil
	})
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the user's manager", left)
	}
	m.quiet(t, requests)
	wantOrder(t, m.journal(t, 0),
		"systemd: Stopping intermission.service",
		"systemd: Stopped intermission.service",
		"systemd: Stopped "+manager)

	s = m.login(t)
	m.serving(t)
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", one)

	// With lingering it all goes on.
	s.must(t, "intermission service install --linger")
	before := m.serving(t)
	two := m.begin(t, "two")
	requests = len(m.requests(t))
	s.logout(t)
	m.quiet(t, requests)
	after := m.serving(t)
	if after.Supervisor.PID != before.Supervisor.PID || after.Server.PID != before.Server.PID {
		t.Errorf("over a logout with lingering %+v became %+v", before, after)
	}
	if active, err := m.active(); err != nil || !active[two] || active[one] {
		t.Errorf("active are %v, %v", active, err)
	}
	m.wantPending(t, "shutdown", one)
}
