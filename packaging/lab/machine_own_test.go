//go:build linux

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMachine holds the lab to what the other tests rely on.
func TestMachine(t *testing.T) {
	requireLab(t)
	var dir string
	t.Run("life", func(t *testing.T) {
		m := newMachine(t)
		dir = m.dir
		s := m.login(t)
		if got := s.must(t, `echo "$LAB_MARK"`); !strings.Contains(loginMark, got) || got == "" {
			t.Errorf("the login shell's variable is %q", got)
		}
		if got := m.user("sh", "-c", `echo "$LAB_MARK"`).stdout; got != "\n" {
			t.Errorf("a command without a login has the login shell's variable: %q", got)
		}
		m.write(t, home+"/kept", "kept", 0o600)
		m.reboot(t)
		if got := m.must(t, "cat", home+"/kept"); got != "kept" {
			t.Errorf("after a reboot the file holds %q", got)
		}
		m.poweroff(t)
		m.boot(t)
		if n := strings.Count(m.must(t, "journalctl", "--list-boots", "-o", "json"), "boot_id"); n != 3 {
			t.Errorf("the journal knows %d boots, not 3", n)
		}
	})
	wantGone(t, dir)
	t.Run("killed", func(t *testing.T) {
		m := newMachine(t)
		dir = m.dir
		leader, err := unix.PidfdOpen(m.leader, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(leader)
		if err := m.keeper.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		m.killed = true
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(leader), Events: unix.POLLIN}}, int(patience.Milliseconds())); n != 1 {
			t.Errorf("the machine outlives its keeper: %v", err)
		}

		if err := sweep(os.TempDir()); err != nil {
			t.Errorf("what a killed run has left can't be removed: %v", err)
		}
	})
	wantGone(t, dir)
}

func wantGone(t *testing.T, dir string) {
	t.Helper()
	if dir == "" {
		return // there was none, for the reason that was told
	}
	mounted, err := mountedCgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{dir, cgroupOf(mounted, dir)} {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Error(fmt.Errorf("%s is left: %w", name, err))
		}
	}
}
