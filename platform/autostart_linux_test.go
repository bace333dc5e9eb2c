package platform

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

// home is a user's directories and the system's, all empty.
type home struct{ config, data, system, systemData string }

func newHome(t *testing.T) home {
	t.Helper()
	dir := t.TempDir()
	h := home{filepath.Join(dir, "config"), filepath.Join(dir, "data"), filepath.Join(dir, "etc"), filepath.Join(dir, "share")}
	t.Setenv("HOME", filepath.Join(dir, "home"))
	t.Setenv("XDG_CONFIG_HOME", h.config)
	t.Setenv("XDG_DATA_HOME", h.data)
	t.Setenv("XDG_CONFIG_DIRS", "relative:"+filepath.Join(dir, "absent")+":"+h.system)
	t.Setenv("XDG_DATA_DIRS", h.systemData)
	return h
}

func (h home) entry() string {
	return filepath.Join(h.config, "autostart", "intermission-tray.desktop")
}
func (h home) common() string {
	return filepath.Join(h.system, "autostart", "intermission-tray.desktop")
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func content(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

var tray = Autostart{"intermission-tray", "Intermission", "Sessions that wait for your consent", []string{"/usr/bin/intermission", "tray"}}

func enabled(t *testing.T, a Autostart) bool {
	t.Helper()
	on, err := a.Enabled()
	must(t, err)
	return on
}

// switched checks what Enabled says.
func switched(t *testing.T, a Autostart, on bool, after string) {
	t.Helper()
	if enabled(t, a) != on {
		t.Errorf("after %s: enabled is %t", after, !on)
	}
}

// validate has the specification's own program look at an entry: not even a hint is right.
func validate(t *testing.T, path string) {
	t.Helper()
	validator := program(t, "desktop-file-validate", "desktop-file-utils")
	out, err := exec.Command(validator, path).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v: %s\n%s", err, out, content(path))
	}
}

func TestAutostart(t *testing.T) {
	h := newHome(t)
	switched(t, tray, false, "nothing")
	must(t, tray.Disable())
	must(t, tray.Enable())
	switched(t, tray, true, "Enable")
	want := `[Desktop Entry]
Type=Application
Name=Intermission
Comment=Sessions that wait for your consent
Icon=intermission
Exec=/usr/bin/intermission tray
TryExec=/usr/bin/intermission
Terminal=false
Categories=Development;
`
	if got := content(h.entry()); got != want {
		t.Errorf("got\n%s", got)
	}

	// With nothing to change nothing is written.
	old := time.Unix(1000, 0)
	must(t, os.Chtimes(h.entry(), old, old))
	must(t, tray.Enable())
	info, err := os.Stat(h.entry())
	must(t, err)
	if !info.ModTime().Equal(old) {
		t.Error("it was written again")
	}

	// What the desktop's settings have added stays, as long as it is the same program.
	put(t, h.entry(), want+"OnlyShowIn=XFCE;\n")
	must(t, tray.Enable())
	if !strings.Contains(content(h.entry()), "OnlyShowIn") {
		t.Error("the desktop's own lines are gone")
	}

	moved := tray
	moved.Argv = []string{"/opt/new/intermission", "tray"}
	switched(t, moved, true, "a move")
	must(t, moved.Enable())
	if got := content(h.entry()); !strings.Contains(got, "\nExec=/opt/new/intermission tray\n") {
		t.Errorf("after a move:\n%s", got)
	}
	must(t, moved.Disable())
	must(t, moved.Disable())
	switched(t, moved, false, "Disable")
	if content(h.entry()) != "" {
		t.Error("the entry is still there")
	}
}

func TestAutostartSwitchedOffByTheDesktop(t *testing.T) {
	h := newHome(t)
	for _, line := range []string{"Hidden=true", "X-GNOME-Autostart-enabled=false"} {
		must(t, tray.Enable())
		put(t, h.entry(), content(h.entry())+line+"\n")
		switched(t, tray, false, line)
		must(t, tray.Enable())
		switched(t, tray, true, "Enable after "+line)
	}
}

func TestAutostartOfThePackage(t *testing.T) {
	h := newHome(t)
	put(t, h.common(), string(tray.desktopEntry()))
	switched(t, tray, true, "the package")
	must(t, tray.Enable())
	if content(h.entry()) != "" {
		t.Error("the user has an entry of no use")
	}
	must(t, tray.Disable())
	switched(t, tray, false, "Disable")
	if !strings.Contains(content(h.entry()), "\nHidden=true\n") {
		t.Errorf("it isn't hidden:\n%s", content(h.entry()))
	}
	validate(t, h.entry())
	must(t, tray.Disable())
	switched(t, tray, false, "Disable twice")
	must(t, tray.Enable())
	switched(t, tray, true, "Enable")
	if content(h.entry()) != "" {
		t.Error("the user's entry still hides the package's")
	}

	other := tray
	other.Argv = []string{"/home/u/go/bin/intermission", "tray"}
	must(t, other.Enable())
	if !strings.Contains(content(h.entry()), "\nExec=/home/u/go/bin/intermission tray\n") {
		t.Errorf("the package's program would be started:\n%s", content(h.entry()))
	}
	must(t, other.Disable())
	switched(t, other, false, "Disable of another program")

	// The package goes, and what hid its entry means nothing any more.
	must(t, os.Remove(h.common()))
	switched(t, tray, false, "the package's end")
	must(t, tray.Enable())
	switched(t, tray, true, "Enable without the package")
}

func TestAutostartWithoutAHome(t *testing.T) {
	t.Setenv("HOME", "")
	t.Setenv("XDG_CONFIG_HOME", "relative")
	_, err := tray.Enabled()
	checkError(t, err, "set HOME")
	checkError(t, tray.Enable(), "set HOME")
	checkError(t, tray.Disable(), "set HOME")
	checkError(t, tray.Watch(t.Context(), func() {}), "set HOME")
}

func TestAutostartThatCannotBeWritten(t *testing.T) {
	h := newHome(t)
	put(t, filepath.Join(h.config, "autostart"), "a file in the way")
	_, err := tray.Enabled()
	checkError(t, err, "cannot tell whether intermission-tray starts at login")
	checkError(t, tray.Enable(), "cannot let intermission-tray start at login")
}

func TestAutostartBesideAHostileEntry(t *testing.T) {
	for path, want := range hostileFiles(t) {
		h := newHome(t)
		must(t, os.MkdirAll(filepath.Dir(h.entry()), 0o700))
		must(t, os.Rename(path, h.entry()))
		_, err := tray.Enabled()
		checkError(t, err, want)
		checkError(t, tray.Enable(), want)
		checkError(t, tray.Disable(), want)
	}
	// Hiding an entry by a link to the null device is a habit, and can be taken back.
	h := newHome(t)
	put(t, h.common(), string(tray.desktopEntry()))
	must(t, os.MkdirAll(filepath.Dir(h.entry()), 0o700))
	must(t, os.Symlink(os.DevNull, h.entry()))
	switched(t, tray, false, "a link to the null device")
	other := tray
	other.Argv = []string{"/opt/intermission", "tray"}
	must(t, other.Enable())
	switched(t, tray, true, "Enable")
}

func TestInstallDesktopEntryOverAFIFO(t *testing.T) {
	h := newHome(t)
	entry := filepath.Join(h.data, "applications/intermission.desktop")
	must(t, os.MkdirAll(filepath.Dir(entry), 0o700))
	must(t, unix.Mkfifo(entry, 0o600))
	must(t, tray.InstallDesktopEntry([]byte("<svg/>")))
	if info, err := os.Lstat(entry); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

func TestEntriesAreValid(t *testing.T) {
	h := newHome(t)
	for name, argv := range map[string][]string{
		"plain":   {"/usr/bin/intermission", "tray"},
		"strange": {`/opt/my "app"/100% $x\y/intermission`, "", "a b", "`x`", `c:\d`, "ü", "%f", "'"},
	} {
		t.Run(name, func(t *testing.T) {
			a := tray
			a.Argv = argv
			must(t, a.Enable())
			validate(t, h.entry())
			must(t, a.InstallDesktopEntry([]byte("<svg/>")))
			validate(t, filepath.Join(h.data, "applications", "intermission.desktop"))
		})
	}
	a := tray
	a.Argv = []string{"/opt/a=b/intermission"}
	checkError(t, a.Enable(), "move it")
	a.Argv = []string{"/opt/\xff/intermission"}
	checkError(t, a.InstallDesktopEntry(nil), "no UTF-8")
}

func TestInstallDesktopEntry(t *testing.T) {
	h := newHome(t)
	entry, icon := filepath.Join(h.data, "applications/intermission.desktop"), filepath.Join(h.data, "icons/hicolor/scalable/apps/intermission.svg")
	must(t, tray.InstallDesktopEntry([]byte("<svg/>")))
	if content(icon) != "<svg/>" || !strings.Contains(content(entry), "\nExec=/usr/bin/intermission tray\n") {
		t.Errorf("icon %q, entry %q", content(icon), content(entry))
	}
	old := time.Unix(1000, 0)
	must(t, os.Chtimes(entry, old, old))
	must(t, tray.InstallDesktopEntry([]byte("<svg />")))
	if info, err := os.Stat(entry); err != nil || !info.ModTime().Equal(old) || content(icon) != "<svg />" {
		t.Errorf("what is the same was written, or what isn't the same wasn't: %v, %q", err, content(icon))
	}

	must(t, os.RemoveAll(h.data))
	put(t, filepath.Join(h.systemData, "applications/intermission.desktop"), "the package's")
	must(t, tray.InstallDesktopEntry([]byte("<svg/>")))
	if content(entry) != "" {
		t.Error("the package's entry is hidden")
	}
}

func TestAutostartWatch(t *testing.T) {
	noLeak(t)
	h := newHome(t)
	must(t, os.MkdirAll(filepath.Dir(h.common()), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes := make(chan struct{}, 1000)
	must(t, tray.Watch(ctx, func() { changes <- struct{}{} }))

	// until looks after each change, as the tray does.
	until := func(what string, on bool) {
		t.Helper()
		for enabled(t, tray) != on {
			is(t, what, changes)
		}
	}
	change := func(what string, f func() error) {
		t.Helper()
		for len(changes) > 0 {
			<-changes
		}
		must(t, f())
		is(t, what, changes)
	}
	change("our own", tray.Enable)
	until("our own", true)
	change("written in place by a settings program", func() error {
		return os.WriteFile(h.entry(), []byte("[Desktop Entry]\nExec=/i\nHidden=true\n"), 0o600)
	})
	until("written in place by a settings program", false)
	change("replaced by a settings program", func() error { return WriteFileAtomic(h.entry(), tray.desktopEntry()) })
	until("replaced by a settings program", true)
	change("removed", func() error { return os.Remove(h.entry()) })
	until("removed", false)
	change("the package's", func() error { return os.WriteFile(h.common(), tray.desktopEntry(), 0o600) })
	until("the package's", true)
	change("the package's end", func() error { return os.Remove(h.common()) })
	until("the package's end", false)
	change("the directory is gone", func() error { return os.RemoveAll(filepath.Dir(h.entry())) })
	change("and there again", tray.Enable)
	until("and there again", true)
	change("watched as before", tray.Disable)
	until("watched as before", false)
}

// TestAutostartWatchGoesOn: whatever was done to the directories, a change of the
// entry that is there in the end is heard of.
func TestAutostartWatchGoesOn(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, h home){
		"the directory renamed": func(t *testing.T, h home) {
			must(t, os.Rename(filepath.Dir(h.entry()), h.data))
			must(t, os.MkdirAll(filepath.Dir(h.entry()), 0o700))
		},
		"the configuration renamed": func(t *testing.T, h home) {
			must(t, os.Rename(h.config, h.data))
			must(t, os.MkdirAll(filepath.Dir(h.entry()), 0o700))
		},
		"the configuration renamed, its directory made later": func(t *testing.T, h home) {
			must(t, os.Rename(h.config, h.data))
			must(t, os.Mkdir(h.config, 0o700))
		},
		"the configuration removed": func(t *testing.T, h home) {
			must(t, os.RemoveAll(h.config))
		},
		"both removed with what is above": func(t *testing.T, h home) {
			must(t, os.RemoveAll(filepath.Dir(h.config)))
		},
		"exchanged with another": func(t *testing.T, h home) {
			must(t, os.MkdirAll(filepath.Join(h.data, "autostart"), 0o700))
			must(t, unix.Renameat2(unix.AT_FDCWD, h.config, unix.AT_FDCWD, h.data, unix.RENAME_EXCHANGE))
		},
		"a link that leads elsewhere": func(t *testing.T, h home) {
			other := t.TempDir()
			must(t, os.Mkdir(filepath.Join(other, "autostart"), 0o700))
			must(t, os.Symlink(other, h.config+".new"))
			must(t, os.Rename(h.config, h.config+".old"))
			must(t, os.Rename(h.config+".new", h.config))
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			h := newHome(t)
			t.Setenv("XDG_CONFIG_HOME", filepath.Join(h.config, "deep", "config"))
			h.config = os.Getenv("XDG_CONFIG_HOME")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changes := make(chan struct{}, 1000)
			must(t, tray.Watch(ctx, func() { changes <- struct{}{} }))
			for range 2 {
				replace(t, h)
				is(t, "that it was replaced", changes)
				must(t, tray.Enable())
				written(t, changes, true)
				must(t, os.Remove(h.entry()))
				written(t, changes, false)
				must(t, os.RemoveAll(h.data))
				must(t, os.RemoveAll(h.config+".old"))
			}
		})
	}
}

// written looks at the entry after each change, until it is so.
func written(t *testing.T, changes <-chan struct{}, on bool) {
	t.Helper()
	for {
		is(t, "the change", changes)
		if enabled(t, tray) == on {
			break
		}
	}
	for len(changes) > 0 {
		<-changes
	}
}

func TestAutostartWatchWakesForItsOwnOnly(t *testing.T) {
	t.Parallel()
	dirs := []string{"/home/u/.config/autostart", "/etc/xdg/autostart"}
	for _, tt := range []struct {
		path string
		op   fsnotify.Op
		want bool
	}{
		{"/home/u/.config/autostart/i.desktop", fsnotify.Create, true},
		{"/home/u/.config/autostart/i.desktop", fsnotify.Write | fsnotify.Chmod, true},
		{"/home/u/.config/autostart/i.desktop", fsnotify.Remove, true},
		{"/home/u/.config/autostart/i.desktop", fsnotify.Chmod, false},
		{"/home/u/.config/autostart/other.desktop", fsnotify.Create, false},
		{"/home/u/.config/autostart/.i.desktop.123", fsnotify.Create, false},
		{"/etc/xdg/autostart/i.desktop", fsnotify.Create, true},
		{"/home/u/.config/autostart", fsnotify.Create, true},
		{"/home/u/.config/dconf", fsnotify.Create, false},
		{"/home/u/.config/i.desktop", fsnotify.Create, false},
	} {
		if got := concerns(fsnotify.Event{Name: tt.path, Op: tt.op}, dirs, "i.desktop"); got != tt.want {
			t.Errorf("%s %s: %t", tt.path, tt.op, got)
		}
	}
}
