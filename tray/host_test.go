//go:build linux

package tray

// The tray as a desktop sees it: a private session bus, a StatusNotifier host, the tray as a child process,
// its menu read and clicked as a panel does it. Each test has a bus of its own, so tests run in parallel:
//
//	func TestResumeByClicking(t *testing.T) {
//		t.Parallel()
//		b := newBus(t)
//		h := newHost(t, b)
//		n := newNotifications(t, b, "actions", "body", "body-markup")
//		b.start(t, "tray", "INTERMISSION_RUNTIME_DIR="+dir) // programs["tray"], in an init function
//
//		tray := h.item(t) // waits for the icon
//		tray.waitMenu(t, func(m *node) bool { return m.find("Pending (2)") != nil })
//		n.wait(t, func(n note) bool { return strings.HasPrefix(n.Summary, "2 sessions") })
//		tray.clickAt(t, "Pending (2)", "Fix the parser…", "Resume session")
//		menu := tray.waitMenu(t, func(m *node) bool { return m.find("Pending (1)") != nil })
//		if diff := cmp.Diff(want, menu.text()); diff != "" {
//			t.Error(diff)
//		}
//
//		h.stop(t)         // the panel goes …
//		h = newHost(t, b) // … and comes back:
//		h.item(t)
//		h.hang() // it answers nobody, until h.answer()
//
//		tray.settled(t)
//		m := b.monitor(t)
//		// … identical states, then one that differs, waited for by tray.waitMenu …
//		if sent := m.sent(t, tray.sender); len(sent) != 3 {
//			t.Errorf("sent: %v", sent)
//		}
//	}
//
// Waits are driven by the bus's signals, and bounded by patience. A wait that fails draws the menu.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

const (
	watcherName = "org.kde.StatusNotifierWatcher"
	watcherPath = "/StatusNotifierWatcher"
	propsName   = "org.freedesktop.DBus.Properties"
)

// host is a panel that shows tray icons. It watches for items and is the host that shows them, as most
// desktops have both in one process. By its gate it hangs, and answers again.
type host struct {
	gate
	bus  *bus
	conn *dbus.Conn
	news news
	gone sync.Once

	mu     sync.Mutex
	count  int                     // of registrations
	latest registration            // the last of them
	listed map[string]registration // what is shown, by its name in the watcher's list
}

// registration is where an item is.
type registration struct {
	sender string // unique name
	path   dbus.ObjectPath
}

// newHost puts a panel on the bus, until stop or the end of the test.
func newHost(t testing.TB, b *bus) *host {
	t.Helper()
	h := &host{bus: b, listed: map[string]registration{}}
	h.conn = b.Connect(t, dbus.WithSignalHandler(h))
	if err := h.conn.AddMatchSignal(dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.stop(t) })
	export(t, h.conn, watcherPath, watcherName, map[string]any{
		"RegisterStatusNotifierItem": h.register,
		"RegisterStatusNotifierHost": func(string) *dbus.Error { h.pass(); return nil },
	})
	export(t, h.conn, watcherPath, propsName, map[string]any{
		"Get": func(_, name string) (dbus.Variant, *dbus.Error) {
			h.pass()
			value, known := h.properties()[name]
			if !known {
				return dbus.Variant{}, dbus.MakeFailedError(fmt.Errorf("no property %s", name))
			}
			return value, nil
		},
		"GetAll": func(string) (map[string]dbus.Variant, *dbus.Error) { h.pass(); return h.properties(), nil },
	})
	claim(t, h.conn, watcherName)
	if err := h.conn.Emit(watcherPath, watcherName+".StatusNotifierHostRegistered"); err != nil {
		t.Fatal(err)
	}
	return h
}

// register takes "/path", as systray sends it, or a bus name, as the specification has it.
func (h *host) register(sender dbus.Sender, service string) *dbus.Error {
	h.pass()
	name, path, listed := string(sender), dbus.ObjectPath(service), string(sender)+service
	if !strings.HasPrefix(service, "/") {
		name, path, listed = service, "/StatusNotifierItem", service
	}
	r := registration{path: path}
	if err := h.conn.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, name).Store(&r.sender); err != nil {
		return dbus.MakeFailedError(err) // gone while the host hung
	}
	h.mu.Lock()
	h.count++
	h.latest = r
	h.listed[listed] = r
	h.mu.Unlock()
	h.news.wake()
	_ = h.conn.Emit(watcherPath, watcherName+".StatusNotifierItemRegistered", listed) // it may be stopped
	return nil
}

// forget makes the host lose the items of a sender, as a host does that has restarted in a hurry.
func (h *host) forget(sender string) {
	h.mu.Lock()
	var lost []string
	for listed, r := range h.listed {
		if r.sender == sender {
			delete(h.listed, listed)
			lost = append(lost, listed)
		}
	}
	h.mu.Unlock()
	for _, listed := range lost {
		_ = h.conn.Emit(watcherPath, watcherName+".StatusNotifierItemUnregistered", listed) // it may be stopped
	}
	h.news.wake()
}

// DeliverSignal takes the items of those who leave the bus from the list.
func (h *host) DeliverSignal(_, member string, s *dbus.Signal) {
	if member == "NameOwnerChanged" && len(s.Body) == 3 && s.Body[2] == "" {
		h.forget(s.Body[0].(string))
	}
}

func (h *host) properties() map[string]dbus.Variant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return map[string]dbus.Variant{
		"RegisteredStatusNotifierItems":  dbus.MakeVariant(append([]string{}, slices.Sorted(maps.Keys(h.listed))...)),
		"IsStatusNotifierHostRegistered": dbus.MakeVariant(true),
		"ProtocolVersion":                dbus.MakeVariant(int32(0)),
	}
}

// shown counts the items that the host has in its list.
func (h *host) shown() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listed)
}

// waitShown returns when the host has n items in its list.
func (h *host) waitShown(t testing.TB, n int) {
	t.Helper()
	if !h.news.await(func() bool { return h.shown() == n }) {
		t.Fatalf("%d items at the host, not %d", h.shown(), n)
	}
}

// registrations counts what items have registered, each time anew.
func (h *host) registrations() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// item returns the item that registered last, and waits for the first.
func (h *host) item(t testing.TB) *statusItem {
	t.Helper()
	h.waitRegistrations(t, 1)
	h.mu.Lock()
	latest := h.latest
	h.mu.Unlock()
	return h.bus.item(t, latest)
}

// waitRegistrations returns when items have registered n times at least.
func (h *host) waitRegistrations(t testing.TB, n int) {
	t.Helper()
	if !h.news.await(func() bool { return h.registrations() >= n }) {
		t.Fatalf("%d registrations at the host, not %d", h.registrations(), n)
	}
}

// stop takes the panel from the bus. Calls that hang in it end without an answer.
func (h *host) stop(t testing.TB) {
	t.Helper()
	h.gone.Do(func() {
		if _, err := h.conn.ReleaseName(watcherName); err != nil {
			t.Errorf("cannot release %s: %v", watcherName, err)
		}
		_ = h.conn.Close()
		h.answer()
	})
}
