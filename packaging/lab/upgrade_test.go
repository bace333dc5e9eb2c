//go:build linux

package lab

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestUpgrade upgrades the package under a session at work, and then removes it.
func TestUpgrade(t *testing.T) {
	m, s := newInstalled(t, oldVersion)
	before := s.serviceUp(t, "")
	if before.Supervisor.Version != oldVersion {
		t.Fatalf("before the upgrade: %+v", before)
	}
	id := m.begin(t, "one")
	requests := len(m.requests(t))

	began := time.Now()
	m.installPackage(t, newVersion)
	m.statusWhen(t, "the new supervisor", func(st status) error {
		if st.Supervisor.Version != newVersion || st.Server.PID != before.Server.PID || !st.Server.Adopted ||
			!slices.Contains(st.Sessions.Active, id) || st.Sessions.Pending != 0 {
			return fmt.Errorf("server %d has to be adopted by %s", before.Server.PID, newVersion)
		}
		return nil
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the new version took over after %v", took)
	}
	m.unitIs(t, "ActiveState", "active")
	m.quiet(t, requests)
	if active, err := m.active(); err != nil || !active[id] {
		t.Errorf("active are %v, %v", active, err)
	}

	// A removal ends us in order, also in the second after the death of a supervisor, and
	// what was at work waits for another installation.
	m.must(t, "kill", "-KILL", strconv.Itoa(m.serving(t).Supervisor.PID))
	m.must(t, "dpkg", "--no-triggers", "--remove", "intermission")
	if left := m.servers(); len(left) > 0 {
		t.Errorf("servers %v outlive the removal", left)
	}
	m.unitIs(t, "ActiveState", "inactive")
	m.unitIs(t, "Result", "success")
	for _, name := range []string{"/usr/bin/intermission", "/usr/lib/systemd/user/intermission.service"} {
		if _, err := os.Lstat(m.path(name)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	m.installPackage(t, newVersion)
	s.serviceUp(t, "")
	m.quiet(t, requests)
	m.wantPending(t, "shutdown", id)
}
