//go:build linux

package lab

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRefusedInstallation holds that an installation that can't be says what to do, and leaves nothing.
func TestRefusedInstallation(t *testing.T) {
	m := newMachine(t)
	m.installPackage(t, newVersion)
	configuration := home + "/.config"

	refused := func(name string, install func(*testing.T) result, wants ...string) {
		t.Run(name, func(t *testing.T) {
			before := m.below(t, configuration, "/var/lib/systemd/linger")
			r := install(t)
			if r.exit == 0 {
				t.Errorf("it succeeds: %v", r)
			}
			for _, want := range wants {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("its error lacks %q: %v", want, r)
				}
			}
			if after := m.below(t, configuration, "/var/lib/systemd/linger"); !slices.Equal(before, after) {
				t.Errorf("it leaves %q, there was %q", after, before)
			}
			if left := m.servers(); len(left) > 0 {
				t.Errorf("servers %v run", left)
			}
		})
	}
	// As after su, without a login: there is no manager of the user's.
	refused("no user manager", func(*testing.T) result {
		return m.withoutLogin("intermission", "service", "install")
	}, "loginctl enable-linger")

	s := m.login(t)
	m.write(t, configuration+"/systemd/user/other.service", "[Service]\nExecStart=/bin/true\n", 0o644)
	m.must(t, "mount", "--bind", configuration, configuration)
	m.must(t, "mount", "-o", "remount,bind,ro", configuration)
	refused("configuration that can't be written", func(t *testing.T) result { return s.run(t, "intermission service install") }, configuration, "read-only")
	m.must(t, "umount", configuration)

	s.must(t, "systemctl --user mask intermission.service")
	refused("masked unit", func(t *testing.T) result { return s.run(t, "intermission service install") }, "unmask")
	if target, err := os.Readlink(m.path(configuration + "/systemd/user/intermission.service")); err != nil || target != "/dev/null" {
		t.Errorf("the mask is %q, %v", target, err)
	}
}
