//go:build linux

package lab

import (
	"fmt"
	"os"
	"slices"
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

	m.must(t, "dpkg", "--remove", "intermission")
	if _, err := os.Stat(m.path("/usr/bin/intermission")); !os.IsNotExist(err) {
		t.Errorf("the program is still there: %v", err)
	}
}
