package platform

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// notified is what a daemon was asked to show.
type notified struct {
	sender        dbus.Sender
	app           string
	replaces      uint32
	icon          string
	summary, body string
	actions       []string
	hints         map[string]dbus.Variant
	timeout       int32
	id            uint32
}

// notificationDaemonFake plays org.freedesktop.Notifications.
type notificationDaemonFake struct {
	conn  *dbus.Conn
	can   []string
	calls chan notified
	last  atomic.Uint32
	// stuck holds up the answers of the method that it names.
	stuck  map[string]chan struct{}
	before func(id uint32) // what happens before Notify answers
}

func startNotifications(t *testing.T, bus *testBus, can ...string) *notificationDaemonFake {
	t.Helper()
	d := &notificationDaemonFake{conn: bus.connect(t), can: can, calls: make(chan notified, 100)}
	d.export(t)
	return d
}

// startStuckNotifications never answers the method until it is released.
func startStuckNotifications(t *testing.T, bus *testBus, method string) (d *notificationDaemonFake, release func()) {
	t.Helper()
	hold := make(chan struct{})
	d = &notificationDaemonFake{conn: bus.connect(t), calls: make(chan notified, 100), stuck: map[string]chan struct{}{method: hold}}
	d.export(t)
	released := false
	release = func() {
		if !released {
			released = true
			close(hold)
		}
	}
	t.Cleanup(release)
	return d, release
}

func (d *notificationDaemonFake) export(t *testing.T) {
	t.Helper()
	must(t, d.conn.Export(d, notificationsPath, notificationsName))
	own(t, d.conn, notificationsName)
}

func (d *notificationDaemonFake) hold(method string) {
	if c := d.stuck[method]; c != nil {
		<-c
	}
}

func (d *notificationDaemonFake) GetCapabilities() ([]string, *dbus.Error) {
	d.hold("GetCapabilities")
	return d.can, nil
}

func (d *notificationDaemonFake) Notify(sender dbus.Sender, app string, replaces uint32, icon, summary, body string,
	actions []string, hints map[string]dbus.Variant, timeout int32) (uint32, *dbus.Error) {
	d.hold("Notify")
	id := replaces
	if id == 0 {
		id = d.last.Add(1)
	}
	if d.before != nil {
		d.before(id)
	}
	d.calls <- notified{sender, app, replaces, icon, summary, body, actions, hints, timeout, id}
	return id, nil
}

// emit sends a signal as the daemon does.
func (d *notificationDaemonFake) emit(t *testing.T, name string, args ...any) {
	t.Helper()
	must(t, d.conn.Emit(notificationsPath, name, args...))
}

// shown gives what the daemon got.
func (d *notificationDaemonFake) shown(t *testing.T) notified {
	t.Helper()
	select {
	case n := <-d.calls:
		return n
	case <-time.After(patience):
		t.Fatal("nothing was shown")
		return notified{}
	}
}

func newNotifier(t *testing.T) *Notifier {
	t.Helper()
	n := NewNotifier(nil, quiet())
	t.Cleanup(n.Close)
	return n
}

// chosen waits for the kind whose Show was chosen.
func chosen(t *testing.T, n *Notifier) string {
	t.Helper()
	select {
	case kind := <-n.Show():
		return kind
	case <-time.After(patience):
		t.Fatal("the choice didn't arrive")
		return ""
	}
}

const nasty = "<b>rm_x</b> && \"y\" 'z' <a href=\"x\">l</a>\nsecond \x1b[31mline\u202E"

func TestNoticeAsTheDaemonCanShowIt(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	plain := "<b>rm_x</b> && \"y\" 'z' <a href=\"x\">l</a>\nsecond [31mline"
	escaped := "&lt;b&gt;rm_x&lt;/b&gt; &amp;&amp; \"y\" 'z' &lt;a href=\"x\"&gt;l&lt;/a&gt;\nsecond [31mline"
	for _, tt := range []struct {
		name    string
		can     []string
		urgent  bool
		body    string
		actions []string
		urgency byte
	}{
		{"everything", []string{"actions", "body", "body-markup", "icon-static"}, true, escaped, []string{"show", "Show"}, 2},
		{"no markup", []string{"body", "actions"}, false, plain, []string{"show", "Show"}, 1},
		{"no actions", []string{"body", "body-markup"}, false, escaped, []string{}, 1},
		{"nothing", nil, false, "", []string{}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			daemon := startNotifications(t, bus, tt.can...)
			defer func() { _ = daemon.conn.Close() }()
			must(t, newNotifier(t).Send(t.Context(), Notice{Kind: "k", Title: "A <title> & more\nlines", Body: nasty, Urgent: tt.urgent}))
			got := daemon.shown(t)
			if got.body != tt.body || got.summary != "A <title> & more lines" || !slices.Equal(got.actions, tt.actions) {
				t.Errorf("%+v", got)
			}
			if got.hints["urgency"].Value() != tt.urgency || got.hints["desktop-entry"].Value() != "intermission" || got.timeout != -1 {
				t.Errorf("hints %v, timeout %d", got.hints, got.timeout)
			}
			if _, ok := got.hints["image-data"]; ok {
				t.Error("an icon from nowhere")
			}
		})
	}
}

func TestNoticeIcon(t *testing.T) {
	bus := startBus(t)
	daemon := startNotifications(t, bus)
	encode := func(side int) []byte {
		img := image.NewNRGBA(image.Rect(0, 0, side, 2))
		img.Set(1, 0, color.NRGBA{200, 100, 50, 128}) // half transparent: must not be darkened
		var b bytes.Buffer
		must(t, png.Encode(&b, img))
		return b.Bytes()
	}
	n := NewNotifier(encode(3), quiet())
	defer n.Close()
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	pixels := make([]byte, 24)
	copy(pixels[4:], []byte{200, 100, 50, 128})
	want := fmt.Sprint([]any{int32(3), int32(2), int32(12), true, int32(8), int32(4), pixels})
	// The receiver's library forgets the type on the wire, so it is looked at here.
	if got := fmt.Sprint(daemon.shown(t).hints["image-data"].Value()); got != want || n.hint.Signature().String() != "(iiibiiay)" {
		t.Errorf("got  %s %s\nwant %s", got, n.hint.Signature(), want)
	}
	for name, icon := range map[string][]byte{"no PNG": []byte("GIF"), "too large": encode(iconMax + 1)} {
		n := NewNotifier(icon, quiet())
		defer n.Close()
		must(t, n.Send(t.Context(), Notice{Kind: "k"}))
		if _, ok := daemon.shown(t).hints["image-data"]; ok {
			t.Errorf("%s: it was sent", name)
		}
	}
}

func TestNoticeReplacesItsKind(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	n := newNotifier(t)
	send := func(kind string) notified {
		t.Helper()
		must(t, n.Send(t.Context(), Notice{Kind: kind, Title: "x"}))
		return daemon.shown(t)
	}
	first := send("a")
	if first.replaces != 0 {
		t.Errorf("the first replaces %d", first.replaces)
	}
	if again := send("a"); again.replaces != first.id {
		t.Errorf("the second replaces %d, want %d", again.replaces, first.id)
	}
	other := send("b")
	if other.replaces != 0 {
		t.Errorf("another kind replaces %d", other.replaces)
	}
	// The click on b shows that what came before it was heard.
	daemon.emit(t, notificationEnded, first.id, uint32(2))
	daemon.emit(t, actionInvoked, first.id, "show") // closed: not ours any more
	daemon.emit(t, actionInvoked, other.id, "show")
	if got := chosen(t, n); got != "b" {
		t.Errorf("chosen: %q", got)
	}
	if anew := send("a"); anew.replaces != 0 {
		t.Errorf("after it was closed: replaces %d", anew.replaces)
	}

	// Another daemon counts anew; the number of the old one could be somebody else's.
	must(t, daemon.conn.Close())
	daemon = startNotifications(t, bus, "actions")
	if got := send("b"); got.replaces != 0 {
		t.Errorf("in another daemon: replaces %d", got.replaces)
	}
}

func TestSignalBeforeTheAnswer(t *testing.T) {
	bus := startBus(t)
	daemon := &notificationDaemonFake{conn: bus.connect(t), can: []string{"actions"}, calls: make(chan notified, 100)}
	daemon.before = func(id uint32) { daemon.emit(t, actionInvoked, id, "show") }
	daemon.export(t)
	n := newNotifier(t)
	must(t, n.Send(t.Context(), Notice{Kind: "quick"}))
	if got := chosen(t, n); got != "quick" {
		t.Errorf("chosen: %q", got)
	}
}

func TestForeignAndMalformedSignals(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	n := newNotifier(t)
	must(t, n.Send(t.Context(), Notice{Kind: "victim"}))
	victim := daemon.shown(t)
	must(t, n.Send(t.Context(), Notice{Kind: "good"}))
	good := daemon.shown(t)

	// To us alone, so that no match rule keeps it away.
	stranger := bus.connect(t)
	for _, name := range []string{"ActionInvoked", "NotificationClosed"} {
		stranger.Send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldDestination: dbus.MakeVariant(string(victim.sender)),
			dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(notificationsPath)),
			dbus.FieldInterface:   dbus.MakeVariant(notificationsName),
			dbus.FieldMember:      dbus.MakeVariant(name),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(victim.id, "show")),
		}, Body: []any{victim.id, "show"}}, nil)
	}
	connections(t, stranger) // the bus has passed them on when it answers this
	for _, name := range []string{actionInvoked, notificationEnded} {
		for _, body := range [][]any{
			{}, {victim.id}, {"show", victim.id}, {int32(victim.id), "show"}, {victim.id, "show", "more"},
			{victim.id + 100, "show"}, {uint32(0), "show"}, {[]string{"x"}, map[string]string{}},
		} {
			daemon.emit(t, name, body...)
		}
	}
	daemon.emit(t, actionInvoked, victim.id, "default")
	daemon.emit(t, actionInvoked, victim.id, []string{"show"})
	daemon.emit(t, actionInvoked, good.id, "show")
	if got := chosen(t, n); got != "good" {
		t.Errorf("a signal that isn't about a notice of ours chose %q", got)
	}
	// And none of them closed it.
	must(t, n.Send(t.Context(), Notice{Kind: "victim"}))
	if got := daemon.shown(t); got.replaces != victim.id {
		t.Errorf("the notice counts as closed: %d is replaced, want %d", got.replaces, victim.id)
	}
}

func TestShowWithoutAReader(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	book, log := newLog()
	n := NewNotifier(nil, log)
	defer n.Close()
	for i := range cap(n.show) + 2 {
		must(t, n.Send(t.Context(), Notice{Kind: fmt.Sprint("k", i)}))
		daemon.emit(t, actionInvoked, daemon.shown(t).id, "show")
	}
	eventually(t, "the clicks too many are dropped", func() bool { return book.lines("dropped") == 2 })
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
}

// TestShowIsChosenOnce, however often the daemon says so; the notice that replaces it can be chosen anew.
func TestShowIsChosenOnce(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	book, log := newLog()
	n := NewNotifier(nil, log)
	defer n.Close()
	for range 2 {
		must(t, n.Send(t.Context(), Notice{Kind: "k"}))
		id := daemon.shown(t).id
		must(t, n.Send(t.Context(), Notice{Kind: "last"}))
		last := daemon.shown(t).id
		for range 200 {
			daemon.emit(t, actionInvoked, id, "show")
		}
		daemon.emit(t, actionInvoked, last, "show")
		for _, want := range []string{"k", "last"} {
			if got := chosen(t, n); got != want {
				t.Errorf("chosen: %q, want %q", got, want)
			}
		}
	}
	if book.lines("dropped") > 0 {
		t.Error("there were more")
	}
}

func TestHungDaemon(t *testing.T) {
	for _, method := range []string{"GetCapabilities", "Notify"} {
		t.Run(method, func(t *testing.T) {
			noLeak(t)
			bus := startBus(t)
			daemon, release := startStuckNotifications(t, bus, method)
			observer := bus.connect(t)
			before := connections(t, observer)
			n := newNotifier(t)
			for range 5 {
				checkError(t, n.Send(within(t, 50*time.Millisecond), Notice{Kind: "k"}), "no answer in time")
			}
			eventually(t, "no connection is left", func() bool { return connections(t, observer) == before })
			release()
			must(t, n.Send(t.Context(), Notice{Kind: "k", Title: "after"}))
			eventually(t, "the notice after is shown", func() bool { return daemon.shown(t).summary == "after" })
		})
	}
}

// TestNoticesOutliveAHang: the connection that a hang costs isn't all that is known of the notices.
func TestNoticesOutliveAHang(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	n := newNotifier(t)
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	first := daemon.shown(t)
	thaw := bus.freeze(t)
	checkError(t, n.Send(within(t, 50*time.Millisecond), Notice{Kind: "k"}), "no answer in time")
	thaw()
	must(t, n.Send(t.Context(), Notice{Kind: "other"}))
	daemon.shown(t)
	daemon.emit(t, actionInvoked, first.id, "show")
	if got := chosen(t, n); got != "k" {
		t.Errorf("chosen: %q", got)
	}
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	if got := daemon.shown(t); got.replaces != first.id {
		t.Errorf("it replaces %d, want %d", got.replaces, first.id)
	}
}

func TestSendsWaitForEachOtherWithinTheirTime(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	startStuckNotifications(t, bus, "Notify")
	n := newNotifier(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- n.Send(ctx, Notice{Kind: "k"}) }()
	eventually(t, "the first is on its way", func() bool { return len(n.turn) == 1 })
	checkError(t, n.Send(within(t, 20*time.Millisecond), Notice{Kind: "k"}), "an earlier one is still on its way")
	cancel()
	checkError(t, <-first, "no answer in time")
}

func TestCloseDuringASend(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	startStuckNotifications(t, bus, "Notify")
	n := newNotifier(t)
	sent := make(chan error, 1)
	go func() { sent <- n.Send(t.Context(), Notice{Kind: "k"}) }()
	eventually(t, "it is connected", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return n.bus != nil })
	n.Close()
	checkError(t, <-sent, "cannot show a notification")
	checkError(t, n.Send(t.Context(), Notice{Kind: "k"}), "the notifier is closed")
	n.Close()
}

func TestFrozenBus(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus, "actions")
	n := newNotifier(t)
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	daemon.shown(t)
	thaw := bus.freeze(t)
	for range 3 { // the first on a connection that is there, the others without one
		checkError(t, n.Send(within(t, 50*time.Millisecond), Notice{Kind: "k"}), "no answer in time")
	}
	thaw()
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
}

func TestNoDaemonAndThenOne(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	n := newNotifier(t)
	checkError(t, n.Send(t.Context(), Notice{Kind: "k"}), notificationsName)
	daemon := startNotifications(t, bus)
	must(t, n.Send(t.Context(), Notice{Kind: "k", Title: "here"}))
	if got := daemon.shown(t); got.summary != "here" {
		t.Errorf("%+v", got)
	}
}

func TestAnotherBus(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	daemon := startNotifications(t, bus)
	n := newNotifier(t)
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	daemon.shown(t)
	bus.kill()
	checkError(t, n.Send(t.Context(), Notice{Kind: "k"}), "cannot show a notification")
	bus.start(t)
	// The names on a new bus are those of the old one, so its ids could be taken for ours.
	daemon = startNotifications(t, bus)
	must(t, n.Send(t.Context(), Notice{Kind: "k"}))
	if got := daemon.shown(t); got.replaces != 0 {
		t.Errorf("a notification of another bus is replaced: %d", got.replaces)
	}
}

func TestNoBusForNotices(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
	n := newNotifier(t)
	checkError(t, n.Send(t.Context(), Notice{Kind: "k"}), "DBUS_SESSION_BUS_ADDRESS isn't set")
}
