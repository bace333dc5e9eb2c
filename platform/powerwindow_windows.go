package platform

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

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
	wmLeave           = 0x8000 + 1 // WM_APP and more are the program's own: this ends our window
)

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

// powerWindow is a hidden window of this process, there for as long as anybody wants it.
// It can't be closed from outside: taskkill, which asks every window to close, would
// leave a supervisor behind that is deaf.
type powerWindow struct {
	class string
	first bool // Windows is to tell this process of the session's end before others
	// handle is what a message means; one that it doesn't know is Windows' own.
	handle   func(window, message, w uintptr) (answer uintptr, known bool)
	register func() (*uint16, error)

	mu     sync.Mutex
	window uintptr
	users  int
	gone   chan struct{} // closed when its thread has ended
}

// The window of a supervisor, and that of a tray, by whose class the installer finds trays.
var (
	watchWindow = newPowerWindow("IntermissionPower", true, watchMessage)
	hearWindow  = newPowerWindow("IntermissionTray", false, hearMessage)
)

func newPowerWindow(class string, first bool, handle func(window, message, w uintptr) (uintptr, bool)) *powerWindow {
	p := &powerWindow{class: class, first: first, handle: handle}
	p.register = sync.OnceValues(func() (*uint16, error) {
		name, err := windows.UTF16PtrFromString(class)
		if err != nil {
			return nil, err
		}
		class := windowClass{proc: windows.NewCallback(p.procedure), name: name}
		class.size = uint32(unsafe.Sizeof(class))
		if ok, _, err := procRegisterClass.Call(uintptr(unsafe.Pointer(&class))); ok == 0 {
			return nil, fmt.Errorf("cannot register a window class: %w", err)
		}
		return name, nil
	})
	return p
}

// open has the window there until ctx ends.
func (p *powerWindow) open(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == 0 {
		opened := make(chan error, 1)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			p.serve(opened)
		}()
		if err := <-opened; err != nil {
			return err
		}
		p.gone = gone
	}
	p.users++
	context.AfterFunc(ctx, p.close)
	return nil
}

func (p *powerWindow) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users--; p.users == 0 {
		_, _, _ = procPostMessage.Call(p.window, wmLeave, 0, 0)
		<-p.gone
		p.window = 0
	}
}

// serve makes the window and serves it on a thread of its own until it is told to
// leave. It is a top-level window that is never shown: to those that are for messages
// only Windows announces nothing.
func (p *powerWindow) serve(opened chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	class, err := p.register()
	if err != nil {
		opened <- err
		return
	}
	window, _, err := procCreateWindow.Call(0, uintptr(unsafe.Pointer(class)), uintptr(unsafe.Pointer(class)), 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if window == 0 {
		opened <- fmt.Errorf("cannot make a window: %w", err)
		return
	}
	p.window = window
	// Neither is essential: the order, and what tells of a sleep in which the computer stays connected.
	if p.first {
		_ = firstToEnd()
	}
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

// procedure is the window's. Windows waits for its answer.
func (p *powerWindow) procedure(window, message, w, l uintptr) uintptr {
	if answer, known := p.handle(window, message, w); known {
		return answer
	}
	switch message {
	case wmClose:
		return 0
	case wmLeave:
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
