package platform

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/esiqveland/notify"
	"github.com/godbus/dbus/v5"
)

const (
	notificationsName = "org.freedesktop.Notifications"
	notificationsPath = "/org/freedesktop/Notifications"
	actionInvoked     = notificationsName + ".ActionInvoked"
	notificationEnded = notificationsName + ".NotificationClosed"
	showAction        = "show"
	// iconMax is the largest icon that is sent, in pixels a side: 256 KiB a notice.
	iconMax = 256
)

// presenter talks to the notification daemon (Desktop Notifications Specification
// 1.2). Of esiqveland/notify only the calls are used: its Notifier panics on a
// malformed signal and hears of everybody's notifications.
type presenter struct {
	turn   chan struct{} // one Send at a time
	hint   dbus.Variant  // the icon; without a value when there is none
	ending sync.WaitGroup

	mu     sync.Mutex
	closed bool
	bus    *noticeBus
}

// noticeBus is a connection, with the notices that were shown through it.
type noticeBus struct {
	*bus
	key string // which bus it is
	mu  sync.Mutex
	// shown has what isn't closed, by kind. It is locked while a notice is sent,
	// for a signal about it may come before the answer that names it.
	shown map[string]shownNotice
}

// shownNotice is a notification of a daemon. Each daemon counts ids from anew.
type shownNotice struct {
	daemon string // unique bus name
	id     uint32
	chosen bool // its Show
}

func (n *Notifier) open() {
	n.turn = make(chan struct{}, 1)
	if img := iconImage(n.icon); img != nil {
		n.hint = notify.HintImageDataRGBA(img).Variant
	}
}

// iconImage decodes a PNG. The specification wants colours that aren't multiplied
// by their opacity, which is image.NRGBA; the library's type only lends the name.
func iconImage(data []byte) *image.RGBA {
	config, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil || config.Width > iconMax || config.Height > iconMax {
		return nil
	}
	decoded, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return nil
	}
	img := image.NewNRGBA(image.Rect(0, 0, config.Width, config.Height))
	draw.Draw(img, img.Rect, decoded, decoded.Bounds().Min, draw.Src)
	return &image.RGBA{Pix: img.Pix, Stride: img.Stride, Rect: img.Rect}
}

func (n *Notifier) present(ctx context.Context, notice Notice) error {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return errors.New("an earlier one is still on its way")
	}
	b, err := n.connect(ctx)
	if err != nil {
		return err
	}
	return b.within(ctx, func() error { return n.presentOn(b, notice) })
}

// connect gives the connection, a new one if there is none or it was lost.
func (n *Notifier) connect(ctx context.Context) (*noticeBus, error) {
	n.mu.Lock()
	old, closed := n.bus, n.closed
	n.mu.Unlock()
	if closed {
		return nil, errNotifierClosed
	}
	if old != nil && old.Connected() {
		return old, nil
	}
	b, err := dialNoticeBus(ctx)
	if err != nil {
		return nil, err
	}
	if old != nil && old.key == b.key { // another bus gives the names of the old one again
		old.mu.Lock()
		maps.Copy(b.shown, old.shown)
		old.mu.Unlock()
	}
	signals := make(chan *dbus.Signal, 16)
	b.Signal(signals)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		b.close()
		return nil, errNotifierClosed
	}
	n.bus = b
	n.ending.Go(func() {
		for {
			select {
			case s, ok := <-signals:
				if !ok {
					return
				}
				n.hear(b, s)
			case <-b.Context().Done(): // signals isn't closed where the connection had gone before
				return
			}
		}
	})
	return b, nil
}

func dialNoticeBus(ctx context.Context) (*noticeBus, error) {
	address, err := busAddress(os.Getenv)
	if err != nil {
		return nil, err
	}
	b, err := dialBus(ctx, address)
	if err != nil {
		return nil, err
	}
	var key string
	err = b.within(ctx, func() error {
		if key, err = busKey(ctx, b); err != nil {
			return err
		}
		return b.AddMatchSignal(dbus.WithMatchSender(notificationsName), dbus.WithMatchObjectPath(notificationsPath),
			dbus.WithMatchInterface(notificationsName))
	})
	if err != nil {
		b.close()
		return nil, err
	}
	return &noticeBus{bus: b, key: key, shown: map[string]shownNotice{}}, nil
}

// presentOn sends a notice as the daemon that is there now can show it.
func (n *Notifier) presentOn(b *noticeBus, notice Notice) error {
	// Asked each time, for another daemon may have taken over. It also starts one that is started on demand.
	can, err := notify.GetCapabilities(b.Conn)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	daemon, err := notificationDaemon(b.bus)
	if err != nil {
		return err
	}
	note := notification(notice, can)
	if n.hint.Value() != nil {
		note.Hints["image-data"] = n.hint
	}
	if old := b.shown[notice.Kind]; old.daemon == daemon {
		note.ReplacesID = old.id
	}
	id, err := notify.SendNotification(b.Conn, note)
	if err != nil {
		return err
	}
	// Asked again: whose id it is counts.
	if daemon, err = notificationDaemon(b.bus); err == nil {
		b.shown[notice.Kind] = shownNotice{daemon: daemon, id: id}
	}
	return nil
}

func notificationDaemon(b *bus) (unique string, err error) {
	err = b.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, notificationsName).Store(&unique)
	return unique, err
}

// markup escapes what a daemon with "body-markup" would read as such. Elsewhere the entities would show.
var markup = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// notification words a notice for a daemon with these capabilities.
func notification(notice Notice, can []string) notify.Notification {
	note := notify.Notification{
		AppName:       "Intermission",
		Summary:       notice.Title, // never has markup
		ExpireTimeout: notify.ExpireTimeoutSetByNotificationServer,
		Hints:         map[string]dbus.Variant{"desktop-entry": dbus.MakeVariant(app)},
	}
	if slices.Contains(can, "body") {
		note.Body = notice.Body
	}
	if slices.Contains(can, "body-markup") {
		note.Body = markup.Replace(note.Body)
	}
	if !notice.NoShow && slices.Contains(can, "actions") {
		note.Actions = []notify.Action{{Key: showAction, Label: "Show"}}
	}
	note.SetUrgency(notify.UrgencyNormal)
	if notice.Urgent {
		note.SetUrgency(notify.UrgencyCritical)
	}
	return note
}

// hear takes a signal of the daemon's. Anybody on the bus can send one, with any
// content; what isn't about a notice of ours, from the daemon that shows it, is nothing.
func (n *Notifier) hear(b *noticeBus, s *dbus.Signal) {
	if len(s.Body) != 2 {
		return
	}
	id, ok := s.Body[0].(uint32)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for kind, shown := range b.shown {
		if shown.daemon != s.Sender || shown.id != id {
			continue
		}
		switch {
		case s.Name == notificationEnded:
			delete(b.shown, kind)
		case s.Name == actionInvoked && s.Body[1] == showAction && !shown.chosen:
			// Once: some daemons leave a notice there that was clicked, and each Show opens a window.
			shown.chosen = true
			b.shown[kind] = shown
			select {
			case n.show <- kind:
			default:
				n.log.Warn("a click on Show was dropped", "kind", kind)
			}
		}
		return
	}
}

func (n *Notifier) close() {
	n.mu.Lock()
	n.closed = true
	b := n.bus
	n.mu.Unlock()
	if b != nil {
		b.close()
	}
	n.ending.Wait()
}
