package platform

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// sZombie is SZOMB of XNU's <sys/proc.h>: ended, waits to be reaped.
const sZombie = 5

// bootID is drawn at each boot. (kern.boottime moves when the clock is set.)
var bootID = sync.OnceValues(func() (string, error) {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("cannot tell this boot from others: %w", err)
	}
	return id, nil
})

func startMicros(k *unix.KinfoProc) uint64 {
	t := k.Proc.P_starttime
	return uint64(t.Sec)*1e6 + uint64(t.Usec)
}

func identityOf(k *unix.KinfoProc, boot string) Identity {
	return Identity{PID: int(k.Proc.P_pid), Start: fmt.Sprint(startMicros(k)), Boot: boot}
}

func identify(pid int) (id Identity, ended bool, err error) {
	if pid <= 0 {
		return Identity{}, false, ErrNoProcess
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, false, err
	}
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	// An answer of no bytes (no such process) is EIO here.
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) {
		return Identity{}, false, ErrNoProcess
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	return identityOf(k, boot), k.Proc.P_stat == sZombie, nil
}

// Signal sends sig to this very process. When it has ended, or its pid is
// another's now, nobody is signalled and ErrNoProcess is returned. macOS has no
// descriptor for a process: the identity is compared immediately before.
func (i Identity) Signal(sig Sig) error {
	s, ok := map[Sig]unix.Signal{Terminate: unix.SIGTERM, Kill: unix.SIGKILL}[sig]
	if !ok {
		return fmt.Errorf("cannot signal process %d: unknown signal %d", i.PID, sig)
	}
	if !i.Alive() {
		return ErrNoProcess
	}
	err := unix.Kill(i.PID, s)
	if errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %d: %w", i.PID, err)
	}
	return nil
}

// cancelIdent names the user event that ends a watch; it shares no name space with pids.
const cancelIdent = 1

// Watch gives a channel that is closed when the process has ended, reaped or not;
// at once when it has ended already. It need not be our child. The channel stays
// open when ctx ends first. One goroutine, and its thread, waits in kevent until either.
func Watch(ctx context.Context, id Identity) (<-chan struct{}, error) {
	done := make(chan struct{})
	if !id.Alive() {
		close(done)
		return done, nil
	}
	kq, err := unix.Kqueue()
	if err != nil {
		return nil, fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	unix.CloseOnExec(kq)
	exit := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&exit, id.PID, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	cancel := unix.Kevent_t{}
	unix.SetKevent(&cancel, cancelIdent, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR)
	_, err = unix.Kevent(kq, []unix.Kevent_t{cancel, exit}, nil, nil)
	// It may have ended, and the pid be another's, before the event was registered.
	if errors.Is(err, unix.ESRCH) || (err == nil && !id.Alive()) {
		_ = unix.Close(kq)
		close(done)
		return done, nil
	}
	if err != nil {
		_ = unix.Close(kq)
		return nil, fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	go waitExit(ctx, kq, done)
	return done, nil
}

func waitExit(ctx context.Context, kq int, done chan<- struct{}) {
	triggered := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(triggered)
		trigger := unix.Kevent_t{Fflags: unix.NOTE_TRIGGER}
		unix.SetKevent(&trigger, cancelIdent, unix.EVFILT_USER, 0)
		_, _ = unix.Kevent(kq, []unix.Kevent_t{trigger}, nil, nil)
	})
	events := make([]unix.Kevent_t, 1)
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Kevent(kq, nil, events, nil)
	}
	if err == nil && n == 1 && events[0].Filter == unix.EVFILT_PROC {
		close(done)
	}
	if !stop() {
		<-triggered // the descriptor is still in use
	}
	_ = unix.Close(kq)
}
