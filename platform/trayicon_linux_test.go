package platform

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"
)

const testItem = "org.kde.StatusNotifierItem-1-1"

// watcherFake plays org.kde.StatusNotifierWatcher.
type watcherFake struct {
	conn       *dbus.Conn
	looks      chan struct{} // how often the list was read
	registered chan string

	mu    sync.Mutex
	items []string
	hold  chan struct{} // while it isn't nil and open, nothing is answered
}

func startWatcher(t *testing.T, bus *testBus, items ...string) *watcherFake {
	t.Helper()
	return startHungWatcher(t, bus, nil, items...)
}

func startHungWatcher(t *testing.T, bus *testBus, hold chan struct{}, items ...string) *watcherFake {
	t.Helper()
	w := &watcherFake{conn: bus.connect(t), looks: make(chan struct{}, 100), registered: make(chan string, 100), items: items, hold: hold}
	must(t, w.conn.Export(w, watcherPath, watcherName))
	must(t, w.conn.Export(watcherProperties{w}, watcherPath, "org.freedesktop.DBus.Properties"))
	own(t, w.conn, watcherName)
	return w
}

func (w *watcherFake) wait() {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// RegisterStatusNotifierItem is called over the bus.
func (w *watcherFake) RegisterStatusNotifierItem(item string) *dbus.Error {
	w.wait()
	w.mu.Lock()
	w.items = append(w.items, item)
	w.mu.Unlock()
	w.registered <- item
	return nil
}

// lose forgets all items, as a host does that reloads its list.
func (w *watcherFake) lose(t *testing.T, say string) {
	t.Helper()
	w.mu.Lock()
	w.items = nil
	w.mu.Unlock()
	must(t, w.conn.Emit(watcherPath, itemUnregistered, say))
}

type watcherProperties struct{ w *watcherFake }

// Get is called over the bus.
func (p watcherProperties) Get(_, property string) (dbus.Variant, *dbus.Error) {
	p.w.looks <- struct{}{}
	p.w.wait()
	if property != "RegisteredStatusNotifierItems" {
		return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", nil)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return dbus.MakeVariant(append([]string{}, p.w.items...)), nil
}

// is waits for something to come.
func is[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return v
}

// keep runs KeepRegistered with short times until the test ends, and gives the log.
func keep(t *testing.T, patient time.Duration) *logBook {
	t.Helper()
	book, log := newLog()
	d, err := OpenDesktop(t.Context(), log)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.keepRegistered(ctx, testItem, 10*time.Millisecond, patient)
	}()
	t.Cleanup(func() {
		cancel()
		closedSoon(t, "the watch has ended", done)
		d.Close()
	})
	return book
}

// registeredHere checks that the watcher got our item, once.
func registeredHere(t *testing.T, w *watcherFake) {
	t.Helper()
	if got := is(t, "the item is registered", w.registered); got != testItem {
		t.Errorf("registered as %q", got)
	}
	if len(w.registered) > 0 {
		t.Errorf("and again as %q", <-w.registered)
	}
}

func TestKeepRegisteredWithoutAHost(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	book := keep(t, patience)
	eventually(t, "it is said", func() bool { return book.lines("on GNOME install the AppIndicator extension") == 1 })
	w := startWatcher(t, bus)
	registeredHere(t, w)
	if n := book.lines("a StatusNotifier host has come"); n != 1 {
		t.Errorf("that it came is said %d times", n)
	}
	// A restart is nothing to talk about.
	must(t, w.conn.Close())
	registeredHere(t, startWatcher(t, bus))
	if n := book.lines("no StatusNotifier host") + book.lines("has come"); n != 2 {
		t.Errorf("%d lines about it", n)
	}
}

func TestKeepRegisteredLeavesARegisteredIconAlone(t *testing.T) {
	bus := startBus(t)
	item := bus.connect(t)
	own(t, item, testItem)
	unique := item.Names()[0]
	for name, entry := range map[string]string{
		"well-known":              testItem,
		"well-known and path":     testItem + "/StatusNotifierItem",
		"unique":                  unique,
		"unique and path":         unique + "/StatusNotifierItem",
		"unique, an at, and path": unique + "@/StatusNotifierItem",
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			w := startWatcher(t, bus, ":1.999/other", entry)
			defer func() { _ = w.conn.Close() }()
			keep(t, patience)
			is(t, "the first look", w.looks)
			// A second look: what the first led to would have come by now.
			must(t, w.conn.Emit(watcherPath, itemUnregistered, "somebody else"))
			is(t, "the second look", w.looks)
			if len(w.registered) > 0 {
				t.Errorf("registered as %q", <-w.registered)
			}
		})
	}
}

func TestKeepRegisteredKnowsTheItemFromOthers(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]bool{
		":1.7": true, ":1.7/StatusNotifierItem": true, ":1.7@/org/ayatana/x": true, testItem: true, testItem + "/x": true,
		":1.70": false, ":1.7 ": false, ":1.70/StatusNotifierItem": false, testItem + "0": false, "": false, "/StatusNotifierItem": false,
	} {
		if got := namesItem(entry, testItem, ":1.7"); got != want {
			t.Errorf("%q: %t", entry, got)
		}
	}
}

func TestKeepRegisteredAfterALoss(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	w := startWatcher(t, bus, testItem)
	book := keep(t, patience)
	is(t, "the first look", w.looks)
	for range 3 {
		w.lose(t, testItem)
		registeredHere(t, w)
	}
	if n := book.lines("registered again"); n != 3 {
		t.Errorf("said %d times", n)
	}
}

// TestKeepRegisteredWithAHostThatIsNotReady: it has its name before it has its object.
func TestKeepRegisteredWithAHostThatIsNotReady(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	w := &watcherFake{conn: bus.connect(t), looks: make(chan struct{}, 100), registered: make(chan string, 100)}
	own(t, w.conn, watcherName)
	book := keep(t, patience)
	eventually(t, "it is said", func() bool { return book.lines("refuses") == 1 })
	must(t, w.conn.Export(watcherProperties{w}, watcherPath, "org.freedesktop.DBus.Properties"))
	is(t, "a look that fails at the registration", w.looks)
	is(t, "the next", w.looks)
	must(t, w.conn.Export(w, watcherPath, watcherName))
	registeredHere(t, w)
	if n := book.lines("refuses"); n != 1 {
		t.Errorf("that it refuses is said %d times", n)
	}
}

func TestKeepRegisteredLooksWhenTheHostIsReady(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	w := startWatcher(t, bus, testItem)
	keep(t, patience)
	is(t, "the first look", w.looks)
	must(t, w.conn.Emit(watcherPath, hostRegistered))
	is(t, "a look after the signal", w.looks)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for i, want := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		if got := retryAfter(time.Second, i+1); got != time.Duration(want)*time.Second {
			t.Errorf("after %d failures %v", i+1, got)
		}
	}
	if got := retryAfter(time.Second, 1<<40); got != hostRetryMax {
		t.Errorf("at last %v", got)
	}
}

// TestOthersDoNotPutALookOff: their items go all the time.
func TestOthersDoNotPutALookOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &iconWatch{settle: time.Second, watcher: ":1.1"}
		start := time.Now()
		others := time.NewTicker(w.settle / 2)
		defer others.Stop()
		w.hear(&dbus.Signal{Name: itemUnregistered, Sender: ":1.1"})
		for {
			select {
			case <-w.look:
				if took := time.Since(start); took != w.settle {
					t.Errorf("looked after %v", took)
				}
				return
			case <-others.C:
				if time.Since(start) > 10*w.settle {
					t.Fatal("no look")
				}
				w.hear(&dbus.Signal{Name: itemUnregistered, Sender: ":1.1"})
			}
		}
	})
}

func TestKeepRegisteredWaitsForTheIcon(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	w := startWatcher(t, bus)
	keep(t, patience)
	is(t, "the first look", w.looks)
	own(t, bus.connect(t), testItem) // the icon comes up later than we, and its own registration is lost
	registeredHere(t, w)
}

func TestKeepRegisteredDoesNotWaitForAHungHost(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	hold := make(chan struct{})
	w := startHungWatcher(t, bus, hold)
	book := keep(t, 20*time.Millisecond)
	eventually(t, "it is said", func() bool { return book.lines("doesn't answer") == 1 })
	is(t, "the look that hangs", w.looks)
	close(hold)
	is(t, "it is looked at anew", w.looks)
	registeredHere(t, w)
}

func TestKeepRegisteredWithTheHostAfterAHungOne(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	own(t, bus.connect(t), testItem)
	hold := make(chan struct{})
	defer close(hold)
	hung := startHungWatcher(t, bus, hold)
	keep(t, patience)
	is(t, "the look that hangs", hung.looks)
	must(t, hung.conn.Close())
	registeredHere(t, startWatcher(t, bus))
}

func TestKeepRegisteredEndsWithTheSession(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	d, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	defer d.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.KeepRegistered(context.Background(), testItem)
	}()
	bus.kill()
	closedSoon(t, "the watch has ended", done)
	d.KeepRegistered(context.Background(), testItem) // comes back, too
}
