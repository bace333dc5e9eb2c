//go:build linux

package tray

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"intermission/restart"
)

// TestNotifications: one at startup, escaped; a daemon that hangs holds nothing up;
// and a notification that expires doesn't cost us the next host.
func TestNotifications(t *testing.T) {
	t.Parallel()
	evil := login()
	evil.Title = "<b>a & b</b>"
	s := newSetting(t, with(running(), evil, stateOf("ses_b", restart.StatePending, "")))
	n := s.notices.wait(t, func(note) bool { return true })
	if n.Summary != "2 sessions wait for you" || !strings.Contains(n.Body, "&lt;b&gt;a &amp; b&lt;/b&gt;") || !strings.Contains(n.Body, "Nothing was resumed.") {
		t.Errorf("%+v", n)
	}
	if !slices.Equal(n.Actions, []string{"show", "Show"}) {
		t.Errorf("actions %q: consent never sits in a notification", n.Actions)
	}
	s.notices.expire(t, n.ID)
	s.host.stop(t)
	s.host = newHost(t, s.bus)
	s.host.item(t)
	s.notices.hang()
	s.says(at(running(), "failed", "no more"))
	s.item.waitMenu(t, shows("OpenCode 1.18.33 failed…"))
	s.notices.waitStuck(t)
	s.says(running())
	s.item.waitMenu(t, shows("OpenCode 1.18.33 is running"))
	s.notices.answer()
}

// script puts an executable of that name on the desk's PATH, which appends its
// arguments, one a line, and its input to a file that is returned.
func (d *desk) script(t testing.TB, name string, input bool) string {
	t.Helper()
	out := d.path(name + ".out")
	text := "#!/bin/sh\n{ for a; do printf '%s\\n' \"$a\"; done; } >> '" + out + ".new'\n"
	if input {
		text += "cat >> '" + out + ".new'\n"
	}
	text += "mv '" + out + ".new' '" + out + "'\n"
	d.write(t, text, "bin", name)
	if err := os.Chmod(d.path("bin", name), 0o700); err != nil {
		t.Fatal(err)
	}
	return out
}

func wantFile(t testing.TB, path, want string) {
	t.Helper()
	eventually(t, filepath.Base(path), func() error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if got := strings.TrimSpace(string(b)); got != want {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	})
}

// TestDesktopPrograms: terminal, clipboard and viewer get what they should, as they are.
func TestDesktopPrograms(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	d := newDesk(t, b)
	terminal, clip, viewer := d.script(t, "xdg-terminal-exec", false), d.script(t, "xclip", true), d.script(t, "xdg-open", false)
	d.env = append(d.env, "PATH="+d.path("bin")+":/usr/bin:/bin", "DISPLAY=:99")
	d.supervise(t, fresh(with(running(), login())))
	h, n := newHost(t, b), newNotifications(t, b, "actions")
	d.tray(t)
	item := h.item(t)
	item.waitMenu(t, shows("Pending (1)"))

	item.clickAt(t, "Open log") // there is none
	item.waitMenu(t, shows("The log was not opened…"))
	d.write(t, "said\n", "state", "intermission", "log", "server.log")
	for range 20 {
		item.clickAt(t, "Open log")
	}
	wantFile(t, viewer, d.path("state", "intermission", "log", "server.log")) // once
	item.waitMenu(t, lacks("The log was not opened…"))

	item.clickAt(t, "Pending (1)", "Fix the login…", "Copy session ID")
	eventually(t, "the clipboard", func() error {
		b, err := os.ReadFile(clip)
		if err == nil && !strings.HasSuffix(strings.TrimSpace(string(b)), "ses_login") {
			err = fmt.Errorf("%q", b)
		}
		return err
	})
	self := d.self(t)
	item.clickAt(t, "Pending (1)", "Fix the login…", "Open in terminal")
	eventually(t, "the terminal", func() error {
		b, err := os.ReadFile(terminal)
		if err == nil && !strings.Contains(string(b), self+"\nopen\nses_login\n") {
			err = fmt.Errorf("%q", b)
		}
		return err
	})
	if err := os.Remove(terminal); err != nil {
		t.Fatal(err)
	}
	first := n.wait(t, func(n note) bool { return n.Summary == "1 session waits for you" })
	n.invoke(t, first.ID, "show")
	eventually(t, "what the notification told of", func() error {
		b, err := os.ReadFile(terminal)
		if err == nil && !strings.Contains(string(b), self+"\npending\n") {
			err = fmt.Errorf("%q", b)
		}
		return err
	})
}

func TestStartAtLogin(t *testing.T) {
	t.Parallel()
	s := newSetting(t, running())
	entry := s.path("config", "autostart", "intermission-tray.desktop")
	marked := func(as toggle) func(*node) bool {
		return func(n *node) bool { l := n.find("Start at login"); return l != nil && l.Enabled && l.Toggle == as }
	}
	for range 2 {
		s.item.waitMenu(t, marked(off))
		s.item.clickAt(t, "Start at login")
		s.item.waitMenu(t, marked(on))
		if _, err := os.Stat(entry); err != nil {
			t.Fatal(err)
		}
		s.item.clickAt(t, "Start at login")
		s.item.waitMenu(t, marked(off))
		if _, err := os.Stat(entry); !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	// The desktop's settings do it too.
	s.item.clickAt(t, "Start at login")
	s.item.waitMenu(t, marked(on))
	if err := os.Remove(entry); err != nil {
		t.Fatal(err)
	}
	s.item.waitMenu(t, marked(off))
}
