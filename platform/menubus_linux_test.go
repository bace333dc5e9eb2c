package platform

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// slowMenu answers its first question late, as the scheduler may have it: when the
// second has been asked too, or after a moment.
type slowMenu struct{ second chan struct{} }

func (m *slowMenu) AboutToShow(id int32) (bool, *dbus.Error) {
	if id == 1 {
		select {
		case <-m.second:
		case <-time.After(menuPatience / 2):
		}
	} else {
		close(m.second)
	}
	return false, nil
}

// TestMenuBus: who asks godbus for the session bus gets ours; questions about a menu
// are answered in their order; and of many changes that are held one is told.
func TestMenuBus(t *testing.T) {
	b := startBus(t)
	m, menu := openMenuBus(t)
	if menu != sharedBus || !menu.Connected() {
		t.Fatal("systray gets another connection")
	}
	must(t, menu.Export(&slowMenu{second: make(chan struct{})}, menuPath, menuInterface))

	host := b.connect(t)
	asked := host.Object(menu.Names()[0], menuPath)
	answers := make(chan *dbus.Call, 2)
	first := asked.Go(menuInterface+".AboutToShow", 0, answers, int32(1))
	asked.Go(menuInterface+".AboutToShow", 0, answers, int32(2))
	select {
	case got := <-answers:
		if got != first {
			t.Error("the second question was answered before the first")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}

	news := make(chan *dbus.Signal, 16)
	host.Signal(news)
	must(t, host.AddMatchSignal(dbus.WithMatchSender(menu.Names()[0])))
	change := func(revision uint32) {
		must(t, menu.Emit(menuPath, "org.freedesktop.DBus.Properties.PropertiesChanged", menuInterface, map[string]dbus.Variant{"Version": dbus.MakeVariant(revision)}, []string{}))
		must(t, menu.Emit(menuPath, menuInterface+".LayoutUpdated", revision, int32(0)))
	}
	m.Hold()
	for revision := range uint32(100) {
		change(revision)
	}
	must(t, menu.Emit(menuPath, menuInterface+".ItemsPropertiesUpdated", []any{}, []any{"LayoutUpdated"}))
	m.Release()
	change(100)
	want := []string{"ItemsPropertiesUpdated", "PropertiesChanged", "LayoutUpdated 99", "PropertiesChanged", "LayoutUpdated 100"}
	for i := range want {
		select {
		case s := <-news:
			got := s.Name[strings.LastIndex(s.Name, ".")+1:]
			if revision, ok := s.Body[0].(uint32); ok {
				got = fmt.Sprint(got, " ", revision)
			}
			if got != want[i] {
				t.Errorf("signal %d is %s, want %s", i, got, want[i])
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s didn't come", want[i])
		}
	}
}

// openMenuBus gives the connection that systray would get, too.
func openMenuBus(t *testing.T) (*MenuBus, *dbus.Conn) {
	t.Helper()
	m, err := OpenMenuBus()
	must(t, err)
	menu, err := dbus.SessionBus()
	must(t, err)
	t.Cleanup(func() { _ = menu.Close() })
	return m, menu
}

// TestMenuBusAbandoned: on a bus that is frozen all ends that waits for it, what asks
// and what writes, and also what is asked later.
func TestMenuBusAbandoned(t *testing.T) {
	for name, call := range map[string]func(*dbus.Conn) error{
		"waits for an answer": func(c *dbus.Conn) error { return c.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err },
		"writes": func(c *dbus.Conn) error {
			return c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, strings.Repeat("x", 4<<20)).Err
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			bus := startBus(t)
			m, menu := openMenuBus(t)
			thaw := bus.freeze(t)
			defer thaw()
			ended := make(chan error, 1)
			go func() { ended <- call(menu) }()
			select {
			case <-m.Done():
				t.Fatal("it is gone already")
			case err := <-ended:
				t.Fatalf("the bus isn't frozen: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
			start := time.Now()
			m.Abandon()
			if err := is(t, "the call has ended", ended); err == nil {
				t.Error("the bus answered")
			}
			closedSoon(t, "Done", m.Done())
			if took := time.Since(start); took < abandonAfter {
				t.Errorf("after %v: nothing could be said any more", took)
			}
			if call(menu) == nil {
				t.Error("a later call is answered")
			}
		})
	}
}

// TestMenuBusThatEndsAlone: the bus hangs up on this connection, and others stay.
func TestMenuBusThatEndsAlone(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	m, _ := openMenuBus(t)
	_, err := m.raw.Write([]byte(strings.Repeat("no message ", 100)))
	must(t, err)
	closedSoon(t, "Done", m.Done())
	connections(t, bus.connect(t)) // the bus is well
}
