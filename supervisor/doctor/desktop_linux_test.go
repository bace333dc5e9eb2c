package doctor

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"intermission/platform"
)

// sessionBus starts a bus that is the session bus of this process until the test
// ends. It starts one service on demand: notifications, as SERVICES says.
func (h *home) sessionBus(t *testing.T) *exec.Cmd {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("dbus-daemon is missing; install dbus-daemon")
		}
		t.Skip("dbus-daemon isn't installed")
	}
	socket := filepath.Join(h.dir, "bus")
	config := h.write("bus.conf", `<busconfig><type>session</type><listen>unix:path=`+socket+`</listen><auth>EXTERNAL</auth>
<servicedir>`+filepath.Join(h.dir, "services")+`</servicedir>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`)
	cmd := exec.Command(daemon, "--nofork", "--config-file="+config, "--print-address")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+socket)
	return cmd
}

// connect makes a connection that has a name on the bus.
func connect(t *testing.T, name string) *dbus.Conn {
	t.Helper()
	c, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	reply, err := c.RequestName(name, dbus.NameFlagDoNotQueue)
	must(t, err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%s is taken", name)
	}
	return c
}

const (
	watcherName = "org.kde.StatusNotifierWatcher"
	daemonName  = "org.freedesktop.Notifications"
)

func (h *home) withoutDesktop(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(h.dir, "runtime"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(h.dir, "xdg"))
	t.Setenv("XDG_CONFIG_DIRS", filepath.Join(h.dir, "etc"))
}

func TestTrayHost(t *testing.T) {
	h := newHome(t)
	h.withoutDesktop(t)
	h.finds("tray host", Skipped, "no desktop session")
	h.finds("tray", Skipped)
	h.sessionBus(t)
	h.finds("tray host", Skipped, "no desktop session") // as after ssh: a bus, and nothing to show anything on
	h.finds("tray", Skipped)
	h.finds("notifications", Skipped)
	t.Setenv("DISPLAY", ":99")
	h.finds("tray host", Warning, "AppIndicator")
	h.finds("tray", Warning, "intermission tray --autostart=on")

	c := connect(t, watcherName)
	h.finds("tray host", Warning, "doesn't say") // it has the name and nothing behind it
	properties, err := prop.Export(c, "/StatusNotifierWatcher", prop.Map{watcherName: {"IsStatusNotifierHostRegistered": {Value: false}}})
	must(t, err)
	h.finds("tray host", Warning, "nothing shows")
	properties.SetMust(watcherName, "IsStatusNotifierHostRegistered", true)
	h.finds("tray host", OK)
}

func TestTrayAtLogin(t *testing.T) {
	h := newHome(t)
	h.withoutDesktop(t)
	h.o.Entry = nil // ours, in a configuration directory of its own
	h.finds("tray", Skipped)
	entry := platform.Autostart{Name: "intermission-tray", Title: "t", Comment: "c", Argv: []string{"/bin/sh", "tray"}}
	must(t, entry.Enable())
	h.finds("tray", OK, "at login")
}

// daemon is a notification daemon that counts what it is sent.
type daemon struct{ sent int }

func (d *daemon) GetServerInformation() (name, vendor, version, spec string, err *dbus.Error) {
	return "Toast\x1b[31m", "us", "1.2", "1.2", nil
}
func (d *daemon) GetCapabilities() ([]string, *dbus.Error) { return []string{"body"}, nil }
func (d *daemon) Notify(string, uint32, string, string, string, []string, map[string]dbus.Variant, int32) (uint32, *dbus.Error) {
	d.sent++
	return 1, nil
}

func TestNotifications(t *testing.T) {
	h := newHome(t)
	h.withoutDesktop(t)
	h.finds("notifications", Skipped)
	started := filepath.Join(h.dir, "started")
	service := h.write("services/x.service", "[D-BUS Service]\nName="+daemonName+"\nExec=/bin/sh -c 'touch "+started+"'\n")
	bus := h.sessionBus(t)
	t.Setenv("WAYLAND_DISPLAY", "wayland-9")
	h.finds("notifications", OK, "the desktop starts")
	h.finds("tray host", Warning)
	if _, err := os.Stat(started); err == nil {
		t.Error("the look started a daemon")
	}

	d := new(daemon)
	c := connect(t, daemonName)
	h.finds("notifications", Warning, "doesn't answer")
	must(t, c.Export(d, "/org/freedesktop/Notifications", daemonName))
	found := h.finds("notifications", OK, "Toast 1.2, without buttons")
	if strings.Contains(found.Detail, "\x1b") {
		t.Errorf("%q", found.Detail)
	}
	h.config("[notify]\nenabled = false\n")
	h.finds("notifications", OK, "switched off")
	h.config("")
	if d.sent > 0 {
		t.Error("a notification was sent")
	}
	must(t, c.Close())
	must(t, os.Remove(service))
	must(t, bus.Process.Signal(syscall.SIGHUP)) // it looks at its services anew
	h.until("nothing shows them", func() bool { return h.check("notifications").State == Warning })
	h.finds("notifications", Warning, "install a notification daemon")

	must(t, bus.Process.Signal(syscall.SIGSTOP))
	h.o.limits = map[string]time.Duration{"notifications": 200 * time.Millisecond}
	h.finds("notifications", Failed, "no answer within")
	must(t, bus.Process.Signal(syscall.SIGCONT))
}
