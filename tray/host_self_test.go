//go:build linux

package tray

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"
	"time"

	"fyne.io/systray"
	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
)

// The harness is tested on a small program that uses systray as its manual says.

func init() { programs["selftest"] = selftest }

// selftest counts the resumes, and takes a check mark on and off.
func selftest() {
	systray.SetIcon(square(16))
	systray.SetTitle("Self test")
	systray.SetTooltip("2 sessions pending")
	systray.Run(func() {
		// Clicks that come while nobody receives are kept, which systray's own channels don't do.
		kept := func(item *systray.MenuItem) *systray.MenuItem {
			item.ClickedCh = make(chan struct{}, 8)
			return item
		}
		header := systray.AddMenuItem("Server running", "")
		header.Disable()
		systray.AddSeparator()
		pending := systray.AddMenuItem("Pending (2)", "")
		resume := kept(pending.AddSubMenuItem("Fix rm__x in the parser", "").AddSubMenuItem("Resume session", ""))
		hidden := pending.AddSubMenuItem("Hidden", "")
		hidden.Hide()
		login := kept(systray.AddMenuItemCheckbox("Start at login", "", false))
		same := kept(systray.AddMenuItem("Nothing changes", ""))
		quit := kept(systray.AddMenuItem("Quit tray", ""))
		go func() {
			for resumed := 0; ; {
				select {
				case <-resume.ClickedCh:
					resumed++
					header.SetTitle(fmt.Sprintf("Resumed %d", resumed))
					systray.SetIcon(square(22))
				case <-login.ClickedCh:
					if login.Checked() {
						login.Uncheck()
					} else {
						login.Check()
					}
				case <-same.ClickedCh:
				case <-quit.ClickedCh:
					systray.Quit()
					return
				}
			}
		}()
	}, nil)
}

// square is a PNG of this many pixels a side.
func square(side int) []byte {
	img := image.NewNRGBA(image.Rect(0, 0, side, side))
	for i := range side {
		img.Set(i, i, color.NRGBA{200, 100, 50, uint8(10 * i)})
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestHarnessReadsAndClicks(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	program := b.start(t, "selftest")
	it := h.item(t)

	want := `(Server running)
---
Pending (2) >
  Fix rm_x in the parser >
    Resume session
[ ] Start at login
Nothing changes
Quit tray
`
	menu := it.menu(t)
	if diff := cmp.Diff(want, menu.text()); diff != "" {
		t.Errorf("the menu (-want +got):\n%s", diff)
	}
	for _, absent := range [][]string{{"Pending"}, {"Pending (2)", "Hidden"}, {"Pending (2)", "Fix rm_x"}, {"Start at login", "…"}} {
		if n := menu.find(absent...); n != nil {
			t.Errorf("found %q: %+v", absent, n)
		}
	}
	wantLook := look{Title: "Self test", ToolTip: "2 sessions pending", Status: "Active", Icon: iconOf(t, square(16))}
	if diff := cmp.Diff(wantLook, it.look(t)); diff != "" {
		t.Errorf("the item (-want +got):\n%s", diff)
	}

	before, _ := it.changes()
	clicked := time.Now()
	it.clickAt(t, "Pending (2)", "Fix rm_x…", "Resume session")
	it.waitMenu(t, func(m *node) bool { return m.find("Resumed 1") != nil })
	if after, latest := it.changes(); after <= before || !latest.After(clicked) {
		t.Errorf("changes: %d before the click, %d after it, the latest %v after it", before, after, latest.Sub(clicked))
	}
	it.waitLook(t, func(l look) bool { return l.Icon == iconOf(t, square(22)) })
	it.clickAt(t, "Start at login")
	it.waitMenu(t, func(m *node) bool { return m.find("Start at login").Toggle == on })
	it.open(t)

	it.clickAt(t, "Quit tray")
	if err := program.wait(t); err != nil {
		t.Errorf("the program ended with %v", err)
	}
}

func TestHarnessHostRestarts(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	program := b.start(t, "selftest")
	it := h.item(t)
	untilItListens(t, b, it)
	h.stop(t)
	h = newHost(t, b)
	if again := h.item(t); again != it {
		t.Errorf("the same program is another item: %v, %v", again.sender, it.sender)
	}
	it.menu(t)

	// By a name, and not by itself, as one program can do it for another.
	name := fmt.Sprintf("%s-%d-1", itemName, program.cmd.Process.Pid)
	watcher := b.Connect(t).Object(watcherName, watcherPath)
	if err := call(t, watcher, watcherName+".RegisterStatusNotifierItem", name).Err; err != nil {
		t.Fatal(err)
	}
	var list dbus.Variant
	if err := call(t, watcher, propsName+".Get", watcherName, "RegisteredStatusNotifierItems").Store(&list); err != nil {
		t.Fatal(err)
	}
	if items, _ := list.Value().([]string); !slices.Contains(items, name) || h.item(t) != it {
		t.Errorf("the list is %q, without %s", items, name)
	}
	program.kill()
	h.waitShown(t, 0)
}

// untilItListens returns when systray would notice a host. It registers, then asks for signals, then listens
// to them, and misses for good what comes in between. But any signal of this shape makes it register again.
func untilItListens(t *testing.T, b *bus, it *statusItem) {
	t.Helper()
	m := b.monitor(t)
	b.waitCarried(t, "the request to hear of hosts", func(m message) bool {
		return m.Sender == it.sender && m.Name == "org.freedesktop.DBus.AddMatch"
	})
	nudger := &notifications{conn: b.own}
	for deadline := time.Now().Add(patience); ; {
		if err := nudger.emit(it.sender, "Nudge", "", "", "x"); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(m.sent(t, it.sender), func(m message) bool { return m.Name == watcherName+".RegisterStatusNotifierItem" }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("systray doesn't listen")
		}
	}
}

func TestHarnessHostHangs(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	h.hang()
	b.start(t, "selftest")
	h.waitStuck(t)
	if n := h.registrations(); n != 0 {
		t.Errorf("%d registrations at a host that hangs", n)
	}
	h.answer()
	h.forget(h.item(t).sender)
	h.waitShown(t, 0)

	h.hang()
	b.start(t, "selftest")
	h.waitStuck(t)
	h.stop(t) // with a caller inside
}

func TestHarnessMonitor(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	b.start(t, "selftest")
	it := h.item(t)
	it.settled(t)
	m := b.monitor(t)
	it.clickAt(t, "Nothing changes")
	if sent := m.sent(t); len(sent) != 0 {
		t.Errorf("sent though nothing changed: %v", sent)
	}
	it.clickAt(t, "Start at login")
	it.waitMenu(t, func(m *node) bool { return m.find("Start at login").Toggle == on })
	var names []string
	for _, msg := range m.sent(t, it.sender) {
		names = append(names, msg.Kind+" "+msg.Name)
	}
	want := []string{
		"signal com.canonical.dbusmenu.ItemsPropertiesUpdated",
		"signal org.freedesktop.DBus.Properties.PropertiesChanged",
		"signal com.canonical.dbusmenu.LayoutUpdated",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("one check mark (-want +got):\n%s", diff)
	}
}

func TestHarnessNotifications(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	n := newNotifications(t, b, "body")
	n.can("body", "actions")
	tray, bystander := b.Connect(t), b.Connect(t)
	if err := bystander.AddMatchSignal(dbus.WithMatchInterface(notificationsName)); err != nil {
		t.Fatal(err)
	}
	heard, overheard := make(chan *dbus.Signal, 8), make(chan *dbus.Signal, 8)
	tray.Signal(heard)
	bystander.Signal(overheard)
	daemon := tray.Object(notificationsName, notificationsPath)
	notify := func(ctx context.Context, replaces uint32, summary string) (id uint32, err error) {
		err = daemon.CallWithContext(ctx, notificationsName+".Notify", 0, "intermission", replaces, "", summary, "body",
			[]string{"show", "Show"}, map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1))}, int32(-1)).Store(&id)
		return id, err
	}

	var can []string
	if err := call(t, daemon, notificationsName+".GetCapabilities").Store(&can); err != nil || !slices.Equal(can, []string{"body", "actions"}) {
		t.Errorf("capabilities %q, error %v", can, err)
	}
	id, err := notify(t.Context(), 0, "one")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := notify(t.Context(), id, "two"); err != nil || again != id {
		t.Errorf("a replacement of %d is %d, error %v", id, again, err)
	}
	got := n.wait(t, func(n note) bool { return n.Summary == "two" })
	got.Hints = nil
	want := note{ID: id, App: "intermission", Replaces: id, Summary: "two", Body: "body", Actions: []string{"show", "Show"},
		Timeout: -1, Sender: tray.Names()[0]}
	if diff := cmp.Diff(want, got); diff != "" || len(n.all()) != 2 {
		t.Errorf("the notification (-want +got):\n%s\nof %d", diff, len(n.all()))
	}

	n.invoke(t, id, "show")
	n.expire(t, id)
	for _, name := range []string{"ActionInvoked", "NotificationClosed"} {
		if s := receive(t, overheard); s.Name != notificationsName+"."+name || s.Body[0] != id {
			t.Errorf("heard %v, not %s of %d", s, name, id)
		}
	}
	if s := receive(t, heard); s.Name != notificationsName+".NotificationClosed" {
		t.Errorf("the sender heard %v", s)
	}
	if err := call(t, daemon, notificationsName+".CloseNotification", id).Err; err != nil {
		t.Error(err)
	}
	n.waitClosed(t, id)

	n.hang()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := notify(ctx, 0, "three"); failed <- err }()
	n.waitStuck(t)
	cancel()
	if err := <-failed; err == nil {
		t.Error("a daemon that hangs has answered")
	}
	n.answer()
	n.wait(t, func(n note) bool { return n.Summary == "three" })
}

// receive returns the next signal from a service; those of the bus itself don't count.
func receive(t *testing.T, signals <-chan *dbus.Signal) *dbus.Signal {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case s := <-signals:
			if s.Sender != "org.freedesktop.DBus" {
				return s
			}
		case <-deadline:
			t.Fatal("no signal")
		}
	}
}

func TestOwnRace(t *testing.T) {
	t.Parallel()
	const report = "==================\nWARNING: DATA RACE\nRead at 0x1 by goroutine 7:\n  %s\n      a.go:1 +0x1\n\n" +
		"Previous write at 0x1 by main goroutine:\n  %s\n      b.go:2 +0x2\n==================\n"
	for _, test := range []struct {
		read, write string
		own         bool
	}{
		{"fyne.io/systray.a()", "fyne.io/systray.b()", false},
		{"intermission/tray.(*renderer).draw()", "fyne.io/systray.b()", true},
		{"fyne.io/systray.a()", "intermission/tray.Run.func1()", true},
	} {
		got := ownRace("before\n" + fmt.Sprintf(report, test.read, test.write) + "after")
		if (got != "") != test.own || test.own && !strings.Contains(got, test.write) {
			t.Errorf("%s with %s: %q", test.read, test.write, got)
		}
	}
}
