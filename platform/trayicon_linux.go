package platform

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// StatusNotifierItem, as freedesktop.org and KDE describe it.
const (
	watcherName      = "org.kde.StatusNotifierWatcher"
	watcherPath      = "/StatusNotifierWatcher"
	itemUnregistered = watcherName + ".StatusNotifierItemUnregistered"
	hostRegistered   = watcherName + ".StatusNotifierHostRegistered"
	nameOwnerChanged = "org.freedesktop.DBus.NameOwnerChanged"
)

// iconWatch keeps one icon registered with whoever owns the watcher's name. It is
// one loop that waits for signals, answers and timers, and never for a call to
// the watcher: that is somebody's panel, which may hang.
type iconWatch struct {
	*Desktop
	item             string
	settle, patience time.Duration
	watcher          string // unique name of the owner; "" is none

	look    <-chan time.Time // when to look; something has happened
	retry   <-chan time.Time // when to look because the last time failed
	failed  int              // how often in turn
	call    chan *dbus.Call  // what was asked last; nil when nothing is open
	overdue <-chan time.Time // when call has taken too long

	again bool // call's answer will be old: something has happened since

	awaited bool // it was logged that there is none
}

func (d *Desktop) keepRegistered(ctx context.Context, item string, settle, patience time.Duration) {
	w := &iconWatch{Desktop: d, item: item, settle: settle, patience: patience}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the call that is open
	signals := make(chan *dbus.Signal, 16)
	d.bus.Signal(signals)
	defer d.bus.RemoveSignal(signals)
	if err := w.subscribe(ctx); err != nil {
		d.log.Warn("the tray icon isn't watched", "err", err)
		return
	}
	owner, err := w.owner(ctx, watcherName)
	w.watcherIs(owner)
	switch {
	case ctx.Err() != nil || !d.bus.Connected():
	case err != nil:
		w.failure(err)
	case owner == "":
		w.awaited = true
		d.log.Warn("no StatusNotifier host: the icon appears when one starts; on GNOME install the AppIndicator extension")
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.done: // signals isn't closed where the session had gone before
			return
		case s, ok := <-signals:
			if !ok {
				return
			}
			w.hear(s)
		case <-w.look:
			w.lookNow(ctx)
		case <-w.retry:
			w.lookNow(ctx)
		case call := <-w.call:
			w.answered(ctx, call)
		case <-w.overdue:
			w.overdue, w.again = nil, true
			d.log.Warn("the StatusNotifier host doesn't answer; the icon is looked after when it does")
		}
	}
}

func (w *iconWatch) subscribe(ctx context.Context) error {
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, watcherName)},
		{dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, w.item)},
		{dbus.WithMatchSender(watcherName), dbus.WithMatchInterface(watcherName), dbus.WithMatchMember("StatusNotifierItemUnregistered")},
		{dbus.WithMatchSender(watcherName), dbus.WithMatchInterface(watcherName), dbus.WithMatchMember("StatusNotifierHostRegistered")},
	} {
		if err := w.bus.AddMatchSignalContext(ctx, match...); err != nil {
			return err
		}
	}
	return nil
}

// owner is the unique name of the owner, "" when there is none.
func (w *iconWatch) owner(ctx context.Context, name string) (unique string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	err = w.bus.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetNameOwner", 0, name).Store(&unique)
	if isError(err, "NameHasNoOwner") {
		return "", nil
	}
	return unique, err
}

// isError tells whether the bus says so.
func isError(err error, name string) bool {
	said := dbus.Error{}
	return errors.As(err, &said) && said.Name == "org.freedesktop.DBus.Error."+name
}

// hear takes a signal. Only the bus tells of owners, and only the watcher of items.
func (w *iconWatch) hear(s *dbus.Signal) {
	switch {
	case s.Name == nameOwnerChanged && s.Sender == "org.freedesktop.DBus" && len(s.Body) == 3:
		owner, ok := s.Body[2].(string)
		switch {
		case ok && s.Body[0] == watcherName:
			w.watcherIs(owner)
		case ok && s.Body[0] == w.item && owner != "":
			w.lookSoon() // the icon is there by now; its own registration may have been lost
		}
	case (s.Name == itemUnregistered || s.Name == hostRegistered) && s.Sender == w.watcher:
		w.lookSoon() // perhaps somebody else's: the list tells
	}
}

// watcherIs notes who the watcher is. What was asked of another one is forgotten.
func (w *iconWatch) watcherIs(owner string) {
	if owner == w.watcher {
		return
	}
	w.watcher, w.look, w.call, w.overdue, w.again = owner, nil, nil, nil, false
	w.retry, w.failed = nil, 0
	if owner == "" {
		return
	}
	if w.awaited {
		w.awaited = false
		w.log.Info("a StatusNotifier host has come")
	}
	w.lookSoon()
}

func (w *iconWatch) lookSoon() {
	switch {
	case w.watcher == "":
	case w.call != nil: // one at a time, for the watcher may hang
		w.again = true
	case w.look == nil: // what comes meanwhile doesn't put it off
		w.look = time.After(w.settle)
	}
}

// lookNow asks the watcher what it has.
func (w *iconWatch) lookNow(ctx context.Context) {
	w.look, w.retry = nil, nil
	if w.watcher == "" { // the bus didn't say before
		owner, err := w.owner(ctx, watcherName)
		if err != nil {
			w.failure(err)
		}
		w.watcherIs(owner)
		return
	}
	w.ask(ctx, "org.freedesktop.DBus.Properties.Get", watcherName, "RegisteredStatusNotifierItems")
}

// hostRetryMax bounds the time between two looks at a host that refuses.
const hostRetryMax = time.Minute

// retryAfter is the back-off after so many failures in turn.
func retryAfter(first time.Duration, failed int) time.Duration {
	return min(first<<min(failed-1, 16), hostRetryMax)
}

// failure has the watcher looked at later: one that owns its name may not be ready yet.
func (w *iconWatch) failure(err error) {
	w.failed++
	// The same again is nothing to talk about, nor is a host that ends.
	if w.failed == 1 && !isError(err, "NoReply") {
		w.log.Warn("the StatusNotifier host refuses; it is asked again", "err", err)
	}
	w.retry = time.After(retryAfter(w.settle, w.failed))
}

// ask calls the watcher; the answer comes into w.call.
func (w *iconWatch) ask(ctx context.Context, method string, args ...any) {
	w.call = make(chan *dbus.Call, 1)
	w.overdue = time.After(w.patience)
	w.bus.Object(w.watcher, watcherPath).GoWithContext(ctx, method, dbus.FlagNoAutoStart, w.call, args...)
}

func (w *iconWatch) answered(ctx context.Context, call *dbus.Call) {
	w.call, w.overdue = nil, nil
	if w.again {
		w.again = false
		w.lookSoon()
		return
	}
	if call.Err != nil {
		w.failure(call.Err)
		return
	}
	var value dbus.Variant
	if call.Store(&value) != nil {
		w.failed = 0
		return // the answer to a registration has no value
	}
	items, _ := value.Value().([]string)
	unique, err := w.owner(ctx, w.item)
	if err != nil {
		w.failure(err)
		return
	}
	if unique == "" || slices.ContainsFunc(items, func(s string) bool { return namesItem(s, w.item, unique) }) {
		w.failed = 0
		return
	}
	w.log.Info("the tray icon had been lost and is registered again")
	w.ask(ctx, watcherName+".RegisterStatusNotifierItem", w.item)
}

// namesItem tells whether an entry of the watcher's list is the item. Watchers
// write a bus name, alone or before a path: ":1.7", ":1.7/StatusNotifierItem",
// ":1.7@/StatusNotifierItem".
func namesItem(entry, item, unique string) bool {
	if i := strings.IndexAny(entry, "/@"); i >= 0 {
		entry = entry[:i]
	}
	return entry == item || entry == unique
}
