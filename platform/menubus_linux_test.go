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
	m, err := OpenMenuBus()
	must(t, err)
	menu, err := dbus.SessionBus()
	must(t, err)
	t.Cleanup(func() { _ = menu.Close() })
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
