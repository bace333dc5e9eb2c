package platform

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Autostart is a program that the desktop starts when the user logs in. The
// system's own entry is the truth: nothing of it is kept elsewhere, and other
// programs (the desktop's settings, Task Manager) may change it too.
type Autostart struct {
	Name           string   // stem of the entry's file name: "intermission-tray"
	Title, Comment string   // what the desktop's settings show; one line each
	Argv           []string // the program, an absolute path, and its arguments
}

func (a Autostart) check() error {
	if a.Name == "" || strings.ContainsAny(a.Name, `/\`) || strings.HasPrefix(a.Name, ".") {
		return fmt.Errorf("%q is no name of an entry", a.Name)
	}
	if len(a.Argv) == 0 || !filepath.IsAbs(a.Argv[0]) {
		return fmt.Errorf("%q: the program's path must be absolute", a.Argv)
	}
	for _, s := range append([]string{a.Title, a.Comment}, a.Argv...) {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("a control character can't stand in an entry")
		}
	}
	return nil
}

// Enabled tells whether the desktop will start the program at the next login: an
// entry is there, whatever program it names, and nobody has switched it off.
func (a Autostart) Enabled() (bool, error) {
	on, err := a.enabled()
	if err != nil {
		return false, fmt.Errorf("cannot tell whether %s starts at login: %w", a.Name, err)
	}
	return on, nil
}

// Enable makes the desktop start the program at login. An entry of ours that
// names another path is rewritten; with nothing to change nothing is written.
func (a Autostart) Enable() error {
	err := a.check()
	if err == nil {
		err = a.enable()
	}
	if err != nil {
		return fmt.Errorf("cannot let %s start at login: %w", a.Name, err)
	}
	return nil
}

// Disable takes back Enable, and switches off an entry that the system has for all users.
func (a Autostart) Disable() error {
	if err := a.disable(); err != nil {
		return fmt.Errorf("cannot stop %s from starting at login: %w", a.Name, err)
	}
	return nil
}

// Watch calls changed after each change of the entry, whoever made it: never twice
// at once, perhaps once for several changes, perhaps when nothing has changed. When
// the directory of the entry or the one above it is taken away the watch waits for
// it, and calls changed for that too. It returns at once; the watch ends with ctx.
// The kernel is waited for, nothing is polled.
func (a Autostart) Watch(ctx context.Context, changed func()) error {
	if err := a.watch(ctx, changed); err != nil {
		return fmt.Errorf("cannot watch whether %s starts at login: %w", a.Name, err)
	}
	return nil
}
