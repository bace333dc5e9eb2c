package platform

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TestPowerWindow sends our window what Windows does. The answer comes when what is
// announced has been heard.
func TestPowerWindow(t *testing.T) {
	name, err := windows.UTF16PtrFromString(powerWindowClass)
	if err != nil {
		t.Fatal(err)
	}
	find := func() uintptr {
		w, _, _ := user32.NewProc("FindWindowW").Call(uintptr(unsafe.Pointer(name)), 0)
		return w
	}
	send := func(message, w, l uintptr) uintptr {
		t.Helper()
		r, _, _ := user32.NewProc("SendMessageW").Call(find(), message, w, l)
		return r
	}
	var heard []PowerEvent
	ended, answered := make(chan struct{}), make(chan struct{})
	err = UnderManager(t.Context(), app, func(run context.Context, _ *ServiceManager) error {
		defer close(ended)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := make(chan PowerEvent, 8)
		WatchPower(ctx, slog.New(slog.NewTextHandler(t.Output(), nil)), func(e PowerEvent) {
			if e == PowerShutdown {
				heard = append(heard, "written") // before the answer, or it is a race
			}
			events <- e
		})
		window := find()
		if window == 0 {
			t.Fatal("there is no window")
		}
		if shown, _, _ := user32.NewProc("IsWindowVisible").Call(window); shown != 0 {
			t.Error("the window is shown")
		}
		if parent, _, _ := user32.NewProc("GetAncestor").Call(window, 1); parent == 0 {
			t.Error("the window is for messages only: Windows doesn't announce a shutdown to it")
		}
		send(wmPowerBroadcast, pbtSuspend, 0)
		send(wmPowerBroadcast, pbtResumeAutomatic, 0)
		send(wmPowerBroadcast, 0xa, 0) // PBT_APMPOWERSTATUSCHANGE is none of ours
		if send(wmQueryEndSession, 0, 0) != 1 {
			t.Error("it is against the session's end")
		}
		if !slices.Contains(heard, "written") {
			t.Error("it answers before what is active is written down")
		}
		send(wmEndSession, 0, 0)
		for _, want := range []PowerEvent{PowerSleep, PowerWake, PowerShutdown, PowerStays} {
			if got := next(t, events); got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
		if run.Err() != nil {
			t.Error("a session that goes on has ended the run")
		}
		go func() {
			defer close(answered)
			send(wmEndSession, 1, 0)
			select {
			case <-ended:
			default:
				t.Error("Windows was told that we are done before we were")
			}
		}()
		<-run.Done()
		return nil
	})
	<-answered
	if err != nil {
		t.Error(err)
	}
	for limit := time.Now().Add(10 * time.Second); find() != 0; {
		if time.Now().After(limit) {
			t.Fatal("the window stays")
		}
		windows.SleepEx(10, false)
	}
}

func next(t *testing.T, events <-chan PowerEvent) PowerEvent {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is heard")
		return ""
	}
}
