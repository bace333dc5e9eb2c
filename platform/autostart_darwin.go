package platform

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// agentFile is the user's launch agent. launchd reads it at login; that is all
// that starting at login needs, so launchctl isn't called. What was switched off
// under "Login Items" is kept by the system where nobody else can read it.
func (a Autostart) agentFile() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, "Library", "LaunchAgents", a.launchAgentLabel()+".plist"), nil
}

func (a Autostart) enabled() (bool, error) {
	path, err := a.agentFile()
	if err != nil {
		return false, err
	}
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && !launchAgentDisabled(data), err
}

func (a Autostart) enable() error {
	path, err := a.agentFile()
	if err != nil {
		return err
	}
	want := a.launchAgent()
	if old, err := readSmall(path); err == nil && bytes.Equal(old, want) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return WriteFileAtomic(path, want)
}

func (a Autostart) disable() error {
	path, err := a.agentFile()
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (a Autostart) watch(ctx context.Context, changed func()) error {
	path, err := a.agentFile()
	if err != nil {
		return err
	}
	return watchEntry(ctx, []string{filepath.Dir(path)}, filepath.Base(path), changed)
}

func (a Autostart) installDesktopEntry([]byte) error { return nil }
