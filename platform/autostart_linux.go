package platform

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// The rules are those of the Desktop Application Autostart Specification 0.5: a
// file of the user's hides the system's of the same name.

func (a Autostart) file() string { return a.Name + ".desktop" }

// userFile is where the user's own entry belongs.
func (a Autostart) userFile() (string, error) {
	config := xdgBase("XDG_CONFIG_HOME", ".config")
	if config == "" {
		return "", errors.New("cannot find the home directory; set " + homeVariable)
	}
	return filepath.Join(config, "autostart", a.file()), nil
}

// xdgBase is one of the directories of the XDG base directory specification; "" when it isn't known.
func xdgBase(name, fallback string) string {
	own := xdgDirectory(os.Getenv, name, fallback)
	if own == "" {
		return ""
	}
	return filepath.Dir(own)
}

// xdgSystem lists the system's directories, the most important first.
func xdgSystem(name, fallback string) (dirs []string) {
	list := os.Getenv(name)
	if list == "" {
		list = fallback
	}
	for _, dir := range filepath.SplitList(list) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	return dirs
}

func (a Autostart) systemDirs() []string {
	dirs := xdgSystem("XDG_CONFIG_DIRS", "/etc/xdg")
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], "autostart")
	}
	return dirs
}

// readEntry reads an entry; one that isn't there is nil.
func readEntry(path string) (map[string]string, error) {
	data, err := readSmall(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return entryKeys(data), nil
}

// entries are the user's entry and the system's that it hides; nil is none.
func (a Autostart) entries() (user, system map[string]string, err error) {
	path, err := a.userFile()
	if err != nil {
		return nil, nil, err
	}
	if user, err = readEntry(path); err != nil {
		return nil, nil, err
	}
	for _, dir := range a.systemDirs() {
		if system, err = readEntry(filepath.Join(dir, a.file())); err != nil || system != nil {
			return user, system, err
		}
	}
	return user, nil, nil
}

func (a Autostart) enabled() (bool, error) {
	user, system, err := a.entries()
	if user == nil {
		user = system
	}
	return entryStarts(user), err
}

// starts tells whether the entry starts this very command.
func (a Autostart) starts(keys map[string]string) bool {
	return entryStarts(keys) && keys["Exec"] == entryExec(a.Argv)
}

func (a Autostart) enable() error {
	if err := checkEntryProgram(a.Argv); err != nil {
		return err
	}
	user, system, err := a.entries()
	if err != nil || a.starts(user) || user == nil && a.starts(system) {
		return err
	}
	path, err := a.userFile()
	if err != nil {
		return err
	}
	if a.starts(system) {
		return os.Remove(path) // nothing of the user's is needed
	}
	return writeEntry(path, a.desktopEntry())
}

func (a Autostart) disable() error {
	user, system, err := a.entries()
	if err != nil {
		return err
	}
	path, err := a.userFile()
	if err != nil {
		return err
	}
	switch {
	case entryStarts(system) && (user == nil || entryStarts(user)):
		if err := a.check(); err != nil {
			return err
		}
		// The rest stands there for the settings program, which can switch it on again.
		return writeEntry(path, a.desktopEntry("Hidden=true"))
	case entryStarts(user):
		return os.Remove(path)
	}
	return nil
}

// writeEntry writes the file, unless it is there with this content.
func writeEntry(path string, data []byte) error {
	if old, err := readSmall(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return WriteFileAtomic(path, data)
}

func (a Autostart) watch(ctx context.Context, changed func()) error {
	path, err := a.userFile()
	if err != nil {
		return err
	}
	return watchEntry(ctx, append([]string{filepath.Dir(path)}, a.systemDirs()...), a.file(), changed)
}

// installDesktopEntry writes a program's entry for the menu; the icon first, so that the menu finds it.
func (a Autostart) installDesktopEntry(icon []byte) error {
	if err := checkEntryProgram(a.Argv); err != nil {
		return err
	}
	entry := filepath.Join("applications", app+".desktop")
	for _, dir := range xdgSystem("XDG_DATA_DIRS", "/usr/local/share:/usr/share") {
		if _, err := os.Stat(filepath.Join(dir, entry)); err == nil {
			return nil
		}
	}
	data := xdgBase("XDG_DATA_HOME", ".local/share")
	if data == "" {
		return errors.New("cannot find the home directory; set " + homeVariable)
	}
	if err := writeEntry(filepath.Join(data, "icons/hicolor/scalable/apps", app+".svg"), icon); err != nil {
		return err
	}
	return writeEntry(filepath.Join(data, entry), a.desktopEntry())
}
