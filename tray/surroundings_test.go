//go:build linux

package tray

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"intermission/assets"
	"intermission/platform"
)

// TestHosts: none at first, one that comes, restarts, hangs, and loses the icon.
func TestHosts(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	d := newDesk(t, b)
	f, _ := d.supervise(t, fresh(running()))
	p := d.tray(t)
	eventually(t, "one line about it", func() error {
		if n := strings.Count(p.said(), "no StatusNotifier host"); n != 1 {
			return fmt.Errorf("%d times", n)
		}
		return nil
	})
	for range 5 {
		h := newHost(t, b)
		h.item(t).waitMenu(t, shows("OpenCode 1.18.33 is running"))
		h.stop(t)
	}
	h := newHost(t, b)
	item := h.item(t)
	h.forget(item.sender)
	h.waitShown(t, 1)
	h.hang()
	f.say(fresh(at(running(), "failed", "x"))) // the menu is there all the same
	item.waitMenu(t, shows("OpenCode 1.18.33 failed…"))
	h.answer()
	h.stop(t)
	h = newHost(t, b)
	h.item(t).waitMenu(t, shows("OpenCode 1.18.33 failed…"))
}

// TestSupervisors: none, one that comes, ends, comes again, is of another version, speaks nonsense.
func TestSupervisors(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	d := newDesk(t, b)
	h := newHost(t, b)
	d.tray(t)
	item := h.item(t)
	item.waitMenu(t, shows("No supervisor is running"))
	item.waitMenu(t, shows("Set up: start the supervisor now, and both at login"))
	absent := iconOf(t, assets.Absent.Data())
	item.waitLook(t, func(l look) bool { return l.Icon == absent })
	for range 3 {
		_, end := d.supervise(t, fresh(with(running(), login())))
		item.waitMenu(t, shows("Pending (1)", "Fix the login…", "Resume session"))
		end()
		item.waitMenu(t, func(n *node) bool { return shows("No supervisor is running")(n) && lacks("Pending…")(n) })
	}
	other := fresh(running())
	other.Status.Supervisor.Version = "0.9"
	_, end := d.supervise(t, other)
	item.waitMenu(t, shows("The supervisor is version 0.9, this tray 1.0…"))
	end()
	item.waitMenu(t, shows("No supervisor is running"))

	nonsense, err := platform.Listen(d.paths.Socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := nonsense.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("220 mail.example ESMTP\r\n"))
			_ = c.Close()
		}
	}()
	if err := d.paths.RecordSocket(); err != nil {
		t.Fatal(err)
	}
	item.waitMenu(t, shows("The supervisor can't be understood"))
	if err := nonsense.Close(); err != nil {
		t.Fatal(err)
	}
	d.supervise(t, fresh(running()))
	item.waitMenu(t, shows("OpenCode 1.18.33 is running"))
}

func TestSecondTray(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	d := newDesk(t, b)
	h := newHost(t, b)
	first := d.tray(t)
	h.item(t)
	second := d.tray(t)
	if status := second.wait(t); status != 0 || !strings.Contains(second.said(), "running already") {
		t.Errorf("exit status %d: %s", status, second.said())
	}
	// In another desktop session of the same user it isn't the second.
	other := *d
	elsewhere := newBus(t)
	other.env = append(slices.Clone(d.env), "DBUS_SESSION_BUS_ADDRESS="+elsewhere.Address())
	there := newHost(t, elsewhere)
	other.tray(t)
	there.item(t)
	first.end(t, syscall.SIGTERM)
	if status := first.cmd.ProcessState.ExitCode(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	d.tray(t)
	h.waitRegistrations(t, 2)
}

func TestLogout(t *testing.T) {
	t.Parallel()
	address, logout := startBus(t)
	d := newDesk(t, &bus{address: address})
	_, retire := d.supervise(t, fresh(with(running(), many(3)...)))
	p := d.tray(t)
	eventually(t, "the tray is up", func() error {
		if !strings.Contains(p.said(), "no StatusNotifier host") {
			return errors.New("it said nothing")
		}
		return nil
	})
	go retire() // all ends at once
	logout()
	if status := p.wait(t); status != 0 || strings.Contains(p.said(), "panic") {
		t.Errorf("exit status %d", status)
	}
}

func TestNoDesktop(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	p := d.tray(t)
	if status := p.wait(t); status != 1 || !strings.Contains(p.said(), "no desktop session") || strings.Contains(p.said(), "panic") {
		t.Errorf("exit status %d: %s", status, p.said())
	}
}

func TestQuit(t *testing.T) {
	t.Parallel()
	s := newSetting(t, running())
	s.item.clickAt(t, "Quit tray (the server goes on)")
	if status := s.tray.wait(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if did := s.supervisor.did(); len(did) != 0 {
		t.Errorf("acts: %q", did)
	}
}
