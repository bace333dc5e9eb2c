//go:build linux

package tray

import (
	"slices"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

const (
	notificationsName = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
)

// notifications is a notification daemon. By its gate it hangs, and answers again.
type notifications struct {
	gate
	conn *dbus.Conn
	news news

	mu           sync.Mutex
	capabilities []string
	notes        []note
	closed       []uint32 // by CloseNotification
	lastID       uint32
}

// note is a notification as it was asked for.
type note struct {
	ID            uint32 // the daemon's answer
	App           string
	Replaces      uint32
	Icon          string
	Summary, Body string
	Actions       []string // key, label, key, label, …
	Hints         map[string]dbus.Variant
	Timeout       int32  // milliseconds; -1: the daemon's choice
	Sender        string // unique name of the connection
}

// newNotifications puts a notification daemon with these capabilities on the bus, until the test ends.
func newNotifications(t testing.TB, b *bus, capabilities ...string) *notifications {
	t.Helper()
	n := &notifications{conn: b.Connect(t), capabilities: capabilities}
	t.Cleanup(n.answer)
	export(t, n.conn, notificationsPath, notificationsName, map[string]any{
		"Notify": n.notify,
		"GetCapabilities": func() ([]string, *dbus.Error) {
			n.pass()
			n.mu.Lock()
			defer n.mu.Unlock()
			return append([]string{}, n.capabilities...), nil
		},
		"GetServerInformation": func() (name, vendor, version, spec string, _ *dbus.Error) {
			n.pass()
			return "test", "intermission", "1", "1.2", nil
		},
		"CloseNotification": func(id uint32) *dbus.Error {
			n.pass()
			n.mu.Lock()
			n.closed = append(n.closed, id)
			n.mu.Unlock()
			_ = n.emit("", "NotificationClosed", id, uint32(3)) // the test may be over
			n.news.wake()
			return nil
		},
	})
	claim(t, n.conn, notificationsName)
	return n
}

func (n *notifications) notify(sender dbus.Sender, app string, replaces uint32, icon, summary, body string,
	actions []string, hints map[string]dbus.Variant, timeout int32) (uint32, *dbus.Error) {
	n.pass()
	n.mu.Lock()
	id := replaces
	if id == 0 {
		n.lastID++
		id = n.lastID
	}
	n.notes = append(n.notes, note{id, app, replaces, icon, summary, body, actions, hints, timeout, string(sender)})
	n.mu.Unlock()
	n.news.wake()
	return id, nil
}

// can sets what the daemon says that it can do.
func (n *notifications) can(capabilities ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.capabilities = capabilities
}

// all returns what has come so far, in its order.
func (n *notifications) all() []note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.notes)
}

// wait returns the first notification that is so, whether it has come already or comes yet.
func (n *notifications) wait(t testing.TB, want func(note) bool) note {
	t.Helper()
	var found note
	if !n.news.await(func() bool {
		all := n.all()
		i := slices.IndexFunc(all, want)
		if i >= 0 {
			found = all[i]
		}
		return i >= 0
	}) {
		t.Fatalf("no such notification. There were: %+v", n.all())
	}
	return found
}

// waitClosed returns when somebody has withdrawn the notification.
func (n *notifications) waitClosed(t testing.TB, id uint32) {
	t.Helper()
	if !n.news.await(func() bool { n.mu.Lock(); defer n.mu.Unlock(); return slices.Contains(n.closed, id) }) {
		t.Fatalf("notification %d wasn't withdrawn", id)
	}
}

// invoke is a person who chooses an action. Everybody who listens hears it.
func (n *notifications) invoke(t testing.TB, id uint32, key string) {
	t.Helper()
	if err := n.emit("", "ActionInvoked", id, key); err != nil {
		t.Fatal(err)
	}
}

// expire ends a notification's time. It is told to everybody who listens and, as some daemons do, to its sender
// whether it listens or not: a systray that shares the sending connection takes no more notice of hosts after that.
func (n *notifications) expire(t testing.TB, id uint32) {
	t.Helper()
	receivers := []string{""}
	for _, note := range n.all() {
		if note.ID == id && !slices.Contains(receivers, note.Sender) {
			receivers = append(receivers, note.Sender)
		}
	}
	for _, receiver := range receivers {
		if err := n.emit(receiver, "NotificationClosed", id, uint32(1)); err != nil {
			t.Fatal(err)
		}
	}
}

// emit sends a signal to one receiver, or, for "", to all who listen.
func (n *notifications) emit(receiver, member string, body ...any) error {
	if receiver == "" {
		return n.conn.Emit(notificationsPath, notificationsName+"."+member, body...)
	}
	return n.conn.Send(&dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(receiver),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(notificationsPath)),
		dbus.FieldInterface:   dbus.MakeVariant(notificationsName),
		dbus.FieldMember:      dbus.MakeVariant(member),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
	}}, nil).Err
}
