package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
)

// theRun is what of this process the system can end: one, for a process is one service.
var theRun atomic.Pointer[managedRun]

// managedRun is a run that can be told to end, and waited for.
type managedRun struct {
	service bool // the service manager tells it, and not a window
	end     context.CancelCauseFunc
	done    chan struct{} // closed when run has returned
}

func underManager(ctx context.Context, name string, run func(context.Context, *ServiceManager) error) error {
	if byServiceManager() {
		h := &serviceHandler{ctx: ctx, run: run}
		if err := svc.Run(name, h); err != nil {
			return errors.Join(h.err, fmt.Errorf("cannot talk to the service manager: %w", err))
		}
		return h.err
	}
	// By hand, or by a logon task: the scheduler starts again what has failed after a
	// minute at the earliest, so that it isn't one who takes over.
	ctx, m := newRun(ctx, false)
	defer m.over()
	return run(ctx, nil)
}

// byServiceManager tells whether the service manager has started us. It starts services
// itself and nothing else, and lives as long as the system: nobody takes its pid. The
// session isn't asked for, as svc.IsWindowsService does: under Wine it is the user's.
func byServiceManager() bool {
	s, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return false
	}
	defer func() { _ = windows.CloseHandle(s) }()
	parent := uint32(os.Getppid())
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(s, &entry); err == nil; err = windows.Process32Next(s, &entry) {
		if entry.ProcessID == parent {
			return parent != 0 && strings.EqualFold(windows.UTF16ToString(entry.ExeFile[:]), "services.exe")
		}
	}
	return false
}

func newRun(ctx context.Context, service bool) (context.Context, *managedRun) {
	m := &managedRun{service: service, done: make(chan struct{})}
	ctx, m.end = context.WithCancelCause(ctx)
	theRun.Store(m)
	return ctx, m
}

func (m *managedRun) over() {
	theRun.CompareAndSwap(m, nil)
	m.end(nil)
	close(m.done)
}

// Causes of an end.
var (
	errToldToStop  = errors.New("the service manager has told it to stop")
	errGoesDown    = errors.New("the computer is shut down")
	errSessionEnds = errors.New("the user's session ends")
)

// Times of a service.
const (
	// startPatience is how long a service may be starting: until then, Windows neither
	// stops it nor tells it of a shutdown.
	startPatience = 30 * time.Second
	pendingBeat   = 2 * time.Second  // between check points
	pendingHint   = 10 * time.Second // until the next one, at most
	announceLimit = 5 * time.Second  // what hears of a shutdown has so long before the end begins
)

// serviceHandler is our side of the service manager's protocol.
type serviceHandler struct {
	ctx context.Context
	run func(context.Context, *ServiceManager) error
	err error // of run
}

// word is what run tells the manager.
type word struct {
	state string
	d     time.Duration
}

// Execute implements svc.Handler.
//
// The run's context doesn't end with ours: that ends by signals, and those of a
// console (somebody logs off, the computer is shut down) reach a service too, where
// only the manager has a say.
func (h *serviceHandler) Execute(_ []string, requests <-chan svc.ChangeRequest, changes chan<- svc.Status) (specific bool, code uint32) {
	ctx, m := newRun(context.WithoutCancel(h.ctx), true)
	words := make(chan word)
	manager := &ServiceManager{restarts: true, tell: func(state string, d time.Duration) {
		select {
		case words <- word{state, d}:
		case <-m.done:
		}
	}}
	go func() {
		defer m.over()
		h.err = h.run(ctx, manager)
	}()
	s := &serviceLife{status: svc.Status{State: svc.StartPending, WaitHint: millis(pendingHint)}}
	changes <- s.status
	beat := time.NewTicker(pendingBeat)
	defer beat.Stop()
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for {
		var changed bool
		select {
		case <-m.done:
			return exitStatus(h.err)
		case w := <-words:
			changed = s.hears(w)
		case <-beat.C:
			changed = s.beats(time.Now())
		case <-patience.C:
			changed = s.hears(word{state: managerReady})
		case r := <-requests:
			if r.Cmd == svc.Interrogate {
				changes <- r.CurrentStatus
				continue
			}
			changed = s.asked(r, m, time.Now())
		}
		if changed {
			changes <- s.status
		}
	}
}

// exitStatus tells the manager an error as a failure, after which it starts the
// service again; one that knows its exit status (HandedOverStatus) has it here too.
func exitStatus(err error) (specific bool, code uint32) {
	if err == nil {
		return false, 0
	}
	if known := interface{ ExitStatus() int }(nil); errors.As(err, &known) {
		return true, uint32(known.ExitStatus())
	}
	return true, 1
}

// serviceLife is what the manager knows of us.
type serviceLife struct {
	status   svc.Status
	stopping time.Time
}

// acceptable is what a running service wants to be told.
const acceptable = svc.AcceptStop | svc.AcceptShutdown | svc.AcceptPreShutdown | svc.AcceptPowerEvent

// hears takes in what run says, and tells whether it changes anything.
func (s *serviceLife) hears(w word) bool {
	pending := s.status.State == svc.StartPending || s.status.State == svc.StopPending
	switch {
	case w.state == managerReady && s.status.State == svc.StartPending:
		s.status = svc.Status{State: svc.Running, Accepts: acceptable}
	case w.state == managerStopping && s.status.State == svc.Running:
		s.status = svc.Status{State: svc.StopPending, WaitHint: millis(max(w.d, pendingHint))}
		s.stopping = time.Now()
	case (w.state == managerStarting || w.state == managerStopping) && pending:
		s.status.CheckPoint++
		s.status.WaitHint = millis(max(w.d, pendingHint))
	default:
		return false
	}
	return true
}

// beats raises the check point of what is pending, but no longer than a stop may take:
// who waits must see that it hangs.
func (s *serviceLife) beats(now time.Time) bool {
	late := s.status.State == svc.StopPending && now.Sub(s.stopping) > ServiceStopLimit
	if late || s.status.State == svc.Running {
		return false
	}
	s.status.CheckPoint++
	return true
}

// asked does what the manager asks for, and tells whether it changes what it knows.
func (s *serviceLife) asked(r svc.ChangeRequest, m *managedRun, now time.Time) bool {
	switch r.Cmd {
	case svc.PowerEvent:
		if e, ok := powerEvent(uintptr(r.EventType)); ok {
			powerHearers.announce(e)
		}
		return false
	case svc.Stop, svc.Shutdown, svc.PreShutdown:
	default:
		return false
	}
	cause := errToldToStop
	if r.Cmd != svc.Stop {
		cause = errGoesDown
	}
	go func() { // what is active is written down before anything is ended
		if r.Cmd != svc.Stop {
			powerHearers.announce(PowerShutdown).wait(announceLimit)
		}
		m.end(cause)
	}()
	if s.status.State == svc.StopPending {
		return false
	}
	s.status = svc.Status{State: svc.StopPending, WaitHint: millis(pendingHint)}
	s.stopping = now
	return true
}

func millis(d time.Duration) uint32 { return uint32(d.Milliseconds()) }

// endSession ends the run of this process, if it has one, and waits for its end.
func endSession(cause error, limit time.Duration) {
	m := theRun.Load()
	if m == nil {
		return
	}
	m.end(cause)
	give := time.NewTimer(limit)
	defer give.Stop()
	select {
	case <-m.done:
	case <-give.C:
	}
}

// firstToEnd makes Windows tell us of the session's end before it tells the server, which
// is a process of its own there (SetProcessShutdownParameters: from high to low).
func firstToEnd() error {
	const first = 0x3ff
	ok, _, err := procShutdownOrder.Call(first, 0)
	if ok != 0 {
		return nil
	}
	return err
}

var procShutdownOrder = windows.NewLazySystemDLL("kernel32.dll").NewProc("SetProcessShutdownParameters")
