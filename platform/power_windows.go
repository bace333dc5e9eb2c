package platform

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// powerHearers are the watchers of this process: the service manager, or the window
// that the process has for it, tells them.
var powerHearers hearers

// How long Windows is kept waiting: it gives a window 5 s to answer, and 2 s before it sleeps.
const (
	sessionAnswer = 4 * time.Second
	sleepAnswer   = 1500 * time.Millisecond
)

// watchPower hears of events from the service manager in a service, and through a
// hidden window otherwise: Windows announces nothing to a process without one.
func watchPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	powerHearers.add(ctx, handle)
	if m := theRun.Load(); m != nil && m.service {
		return
	}
	if err := openPowerWindow(ctx); err != nil {
		log.Warn("no power events: sessions are suspended when the server stops, not at the announcement", "error", err)
	}
}

var (
	user32              = windows.NewLazySystemDLL("user32.dll")
	procRegisterClass   = user32.NewProc("RegisterClassExW")
	procCreateWindow    = user32.NewProc("CreateWindowExW")
	procDestroyWindow   = user32.NewProc("DestroyWindow")
	procDefWindow       = user32.NewProc("DefWindowProcW")
	procGetMessage      = user32.NewProc("GetMessageW")
	procDispatchMessage = user32.NewProc("DispatchMessageW")
	procPostMessage     = user32.NewProc("PostMessageW")
	procPostQuit        = user32.NewProc("PostQuitMessage")
	procBlockReason     = user32.NewProc("ShutdownBlockReasonCreate")
	procUnblockReason   = user32.NewProc("ShutdownBlockReasonDestroy")
	procHearSuspend     = user32.NewProc("RegisterSuspendResumeNotification")
	procDeafSuspend     = user32.NewProc("UnregisterSuspendResumeNotification")
)

// Messages of Windows (winuser.h).
const (
	wmDestroy         = 0x0002
	wmClose           = 0x0010
	wmQueryEndSession = 0x0011
	wmEndSession      = 0x0016
	wmPowerBroadcast  = 0x0218

	pbtSuspend         = 0x4  // PBT_APMSUSPEND
	pbtResumeCritical  = 0x6  // PBT_APMRESUMECRITICAL
	pbtResumeAutomatic = 0x12 // PBT_APMRESUMEAUTOMATIC: comes after each sleep; PBT_APMRESUMESUSPEND after it, when somebody is there
)

// powerEvent is what an event of WM_POWERBROADCAST, or of a service's control, means for us.
func powerEvent(event uintptr) (PowerEvent, bool) {
	switch event {
	case pbtSuspend:
		return PowerSleep, true
	case pbtResumeAutomatic, pbtResumeCritical:
		return PowerWake, true
	}
	return "", false
}

// powerWindowClass is the class of our window.
const powerWindowClass = "IntermissionPower"

// windowClass is WNDCLASSEXW.
type windowClass struct {
	size, style                        uint32
	proc                               uintptr
	classExtra, windowExtra            int32
	instance, icon, cursor, background windows.Handle
	menu, name                         *uint16
	smallIcon                          windows.Handle
}

// windowMessage is MSG.
type windowMessage struct {
	window  windows.HWND
	message uint32
	w, l    uintptr
	time    uint32
	x, y    int32
	private uint32
}

var registerPowerClass = sync.OnceValues(func() (*uint16, error) {
	name, err := windows.UTF16PtrFromString(powerWindowClass)
	if err != nil {
		return nil, err
	}
	class := windowClass{proc: windows.NewCallback(powerWindow), name: name}
	class.size = uint32(unsafe.Sizeof(class))
	if ok, _, err := procRegisterClass.Call(uintptr(unsafe.Pointer(&class))); ok == 0 {
		return nil, fmt.Errorf("cannot register a window class: %w", err)
	}
	return name, nil
})

// The window of this process, for as long as anybody wants it.
var thePowerWindow struct {
	sync.Mutex
	handle uintptr
	users  int
	gone   chan struct{} // closed when its thread has ended
}

// openPowerWindow has the window there until ctx ends.
func openPowerWindow(ctx context.Context) error {
	w := &thePowerWindow
	w.Lock()
	defer w.Unlock()
	if w.users == 0 {
		opened := make(chan error, 1)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			runPowerWindow(opened)
		}()
		if err := <-opened; err != nil {
			return err
		}
		w.gone = gone
	}
	w.users++
	context.AfterFunc(ctx, closePowerWindow)
	return nil
}

func closePowerWindow() {
	w := &thePowerWindow
	w.Lock()
	defer w.Unlock()
	if w.users--; w.users == 0 {
		_, _, _ = procPostMessage.Call(w.handle, wmClose, 0, 0)
		<-w.gone
		w.handle = 0
	}
}

// runPowerWindow makes the window and serves it on a thread of its own until it is
// closed. It is a top-level window that is never shown: to those that are for
// messages only Windows announces nothing.
func runPowerWindow(opened chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	class, err := registerPowerClass()
	if err != nil {
		opened <- err
		return
	}
	window, _, err := procCreateWindow.Call(0, uintptr(unsafe.Pointer(class)), uintptr(unsafe.Pointer(class)), 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if window == 0 {
		opened <- fmt.Errorf("cannot make a window: %w", err)
		return
	}
	thePowerWindow.handle = window
	// Neither is essential: the order, and what tells of a sleep in which the computer stays connected.
	_ = firstToEnd()
	if procHearSuspend.Find() == nil {
		if notification, _, _ := procHearSuspend.Call(window, 0); notification != 0 {
			defer func() { _, _, _ = procDeafSuspend.Call(notification) }()
		}
	}
	opened <- nil
	for {
		var m windowMessage
		more, _, _ := procGetMessage.Call(uintptr(unsafe.Pointer(&m)), 0, 0, 0)
		if int32(more) <= 0 {
			return
		}
		_, _, _ = procDispatchMessage.Call(uintptr(unsafe.Pointer(&m)))
	}
}

// powerWindow is the window's procedure. Windows waits for its answer.
func powerWindow(window, message, w, l uintptr) uintptr {
	switch message {
	case wmQueryEndSession:
		blockShutdown(window)
		powerHearers.announce(PowerShutdown).wait(sessionAnswer)
		return 1
	case wmEndSession:
		defer func() { _, _, _ = procUnblockReason.Call(window) }()
		if w == 0 {
			powerHearers.announce(PowerStays)
			return 0
		}
		// When this returns the process may be ended at any moment.
		endSession(errSessionEnds, ServiceStopLimit)
		return 0
	case wmPowerBroadcast:
		if e, ok := powerEvent(w); ok {
			announced := powerHearers.announce(e)
			if e == PowerSleep {
				announced.wait(sleepAnswer)
			}
		}
		return 1
	case wmClose:
		_, _, _ = procDestroyWindow.Call(window)
		return 0
	case wmDestroy:
		_, _, _ = procPostQuit.Call(0)
		return 0
	}
	r, _, _ := procDefWindow.Call(window, message, w, l)
	return r
}

// blockShutdown says on the screen of the shutdown what it waits for.
func blockShutdown(window uintptr) {
	reason, err := windows.UTF16PtrFromString("The OpenCode server is being stopped in order.")
	if err == nil {
		_, _, _ = procBlockReason.Call(window, uintptr(unsafe.Pointer(reason)))
	}
}
