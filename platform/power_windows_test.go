package platform

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TestPowerWindow sends our window what Windows does. The answer comes when what is
// announced has been heard.
func TestPowerWindow(t *testing.T) {
	find := func() uintptr { return findWindow(t, watchWindow.class) }
	send := func(message, w, l uintptr) uintptr {
		t.Helper()
		return sendMessage(find(), message, w, l)
	}
	var heard []PowerEvent
	ended, answered := make(chan struct{}), make(chan struct{})
	err := UnderManager(t.Context(), app, func(run context.Context, _ *ServiceManager) error {
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
		send(wmClose, 0, 0)
		endWithoutForce(t)
		if find() != window {
			t.Fatal("who asks every window to close makes it deaf")
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
	untilGone(t, watchWindow.class)
}

// TestHearPowerOnlyListens: nothing waits for who listens, and the end of the session isn't theirs to order.
func TestHearPowerOnlyListens(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	const usual = 0x280 // SetProcessShutdownParameters; another test may have changed it
	_, _, _ = procShutdownOrder.Call(usual, 0)
	events, leave := make(chan PowerEvent, 8), make(chan struct{})
	HearPower(ctx, slog.New(slog.NewTextHandler(t.Output(), nil)), func(e PowerEvent) {
		events <- e
		<-leave
	})
	window := findWindow(t, hearWindow.class)
	if window == 0 {
		t.Fatal("there is no window")
	}
	if findWindow(t, watchWindow.class) != 0 {
		t.Error("who listens has the window of a supervisor")
	}
	began := time.Now()
	if sendMessage(window, wmQueryEndSession, 0, 0) != 1 {
		t.Error("it is against the session's end")
	}
	sendMessage(window, wmPowerBroadcast, pbtSuspend, 0)
	if took := time.Since(began); took >= sleepAnswer {
		t.Errorf("Windows was kept waiting for %s", took)
	}
	if query := user32.NewProc("ShutdownBlockReasonQuery"); query.Find() == nil { // Wine hasn't got it
		var size uint32
		if blocked, _, _ := query.Call(window, 0, uintptr(unsafe.Pointer(&size))); blocked != 0 {
			t.Error("it says that the shutdown waits for it")
		}
	}
	var order, flags uint32
	_, _, _ = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessShutdownParameters").Call(uintptr(unsafe.Pointer(&order)), uintptr(unsafe.Pointer(&flags)))
	if order != usual {
		t.Errorf("its place in the order of a shutdown was %#x and is %#x", usual, order)
	}
	sendMessage(window, wmEndSession, 0, 0)
	sendMessage(window, wmPowerBroadcast, pbtResumeAutomatic, 0)
	close(leave)
	for _, want := range []PowerEvent{PowerShutdown, PowerSleep, PowerStays, PowerWake} {
		if got := next(t, events); got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	cancel()
	untilGone(t, hearWindow.class)
}

// endWithoutForce asks this very process to end, as the system's own tool asks without
// /F: it asks every window of it to close.
func endWithoutForce(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "taskkill.exe", "/PID", strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sendMessage(findWindow(t, watchWindow.class), wmPowerBroadcast, 0, 0) // after what was posted
}

func findWindow(t *testing.T, class string) uintptr {
	t.Helper()
	name, err := windows.UTF16PtrFromString(class)
	if err != nil {
		t.Fatal(err)
	}
	w, _, _ := user32.NewProc("FindWindowW").Call(uintptr(unsafe.Pointer(name)), 0)
	return w
}

func sendMessage(window, message, w, l uintptr) uintptr {
	r, _, _ := user32.NewProc("SendMessageW").Call(window, message, w, l)
	return r
}

func untilGone(t *testing.T, class string) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); findWindow(t, class) != 0; {
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
