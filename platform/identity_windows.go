package platform

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"golang.org/x/sys/windows"
)

func startTicks(h windows.Handle) (uint64, error) {
	var created, exited, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &created, &exited, &kernel, &user); err != nil {
		return 0, err
	}
	return uint64(created.HighDateTime)<<32 | uint64(created.LowDateTime), nil
}

// identityFrom needs no boot: a creation time is absolute, in units of 100 ns.
func identityFrom(pid int, ticks uint64) Identity {
	return Identity{PID: pid, Start: strconv.FormatUint(ticks, 10)}
}

// openProcess opens a process; while the handle is open its pid is not used again.
func openProcess(pid int, access uint32) (windows.Handle, error) {
	if pid <= 0 {
		return 0, ErrNoProcess
	}
	h, err := windows.OpenProcess(access|windows.PROCESS_QUERY_LIMITED_INFORMATION|windows.SYNCHRONIZE, false, uint32(pid))
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return 0, ErrNoProcess
	}
	if err != nil {
		return 0, fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	return h, nil
}

func identify(pid int) (id Identity, ended bool, err error) {
	h, err := openProcess(pid, 0)
	if err != nil {
		return Identity{}, false, err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	ticks, err := startTicks(h)
	if err != nil {
		return Identity{}, false, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	event, err := windows.WaitForSingleObject(h, 0)
	return identityFrom(pid, ticks), err == nil && event == windows.WAIT_OBJECT_0, nil
}

// openIdentity opens this very process.
func openIdentity(id Identity, access uint32) (windows.Handle, error) {
	h, err := openProcess(id.PID, access)
	if err != nil {
		return 0, err
	}
	if !id.Alive() {
		_ = windows.CloseHandle(h)
		return 0, ErrNoProcess
	}
	return h, nil
}

// Signal sends sig to this very process. When it has ended, or its pid is
// another's now, nobody is signalled and ErrNoProcess is returned.
func (i Identity) Signal(sig Sig) error {
	h, err := openIdentity(i, windows.PROCESS_TERMINATE)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	switch sig {
	case Terminate:
		err = ctrlBreak(uint32(i.PID))
	case Kill:
		err = windows.TerminateProcess(h, 1)
	default:
		err = fmt.Errorf("unknown signal %d", sig)
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %d: %w", i.PID, err)
	}
	return nil
}

var (
	kernel32          = windows.NewLazySystemDLL("kernel32.dll")
	procAttachConsole = kernel32.NewProc("AttachConsole")
	procFreeConsole   = kernel32.NewProc("FreeConsole")
	procGetConsole    = kernel32.NewProc("GetConsoleWindow")
	consoleMutex      sync.Mutex
)

// ctrlBreak sends CTRL_BREAK to a process group. It only reaches groups of the
// sender's console, so without a console of our own (a service, a logon task) we
// go to the target's for a moment. With one, and the target on another, it fails,
// and the caller's next step is Kill.
func ctrlBreak(pid uint32) error {
	consoleMutex.Lock()
	defer consoleMutex.Unlock()
	if own, _, _ := procGetConsole.Call(); own == 0 {
		if ok, _, err := procAttachConsole.Call(uintptr(pid)); ok == 0 {
			return err
		}
		defer func() { _, _, _ = procFreeConsole.Call() }()
	}
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, pid)
}

// Watch gives a channel that is closed when the process has ended; at once when it
// has ended already. It need not be our child. The channel stays open when ctx ends
// first. One goroutine, and its thread, waits in the kernel until either.
func Watch(ctx context.Context, id Identity) (<-chan struct{}, error) {
	done := make(chan struct{})
	h, err := openIdentity(id, 0)
	if errors.Is(err, ErrNoProcess) {
		close(done)
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	cancel, err := windows.CreateEvent(nil, 1, 0, nil)
	if err != nil {
		_ = windows.CloseHandle(h)
		return nil, fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	go func() {
		signalled := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(signalled)
			_ = windows.SetEvent(cancel)
		})
		event, err := windows.WaitForMultipleObjects([]windows.Handle{h, cancel}, false, windows.INFINITE)
		if err == nil && event == windows.WAIT_OBJECT_0 {
			close(done)
		}
		if !stop() {
			<-signalled // the event is still in use
		}
		_ = windows.CloseHandle(cancel)
		_ = windows.CloseHandle(h)
	}()
	return done, nil
}
