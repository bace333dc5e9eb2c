// Package supervisor keeps one OpenCode server running, and keeps the promise
// that nothing it ran goes on without consent.
//
// What happens next is decided by Reduce, a pure function. Its edges, by input:
//
//	stopped  ── boot, start, appear ──▶ starting
//	stopped  ── restart ──▶ stopping
//	starting ── parked, left ──▶ stopped
//	starting ── ready, adopted ──▶ running
//	starting ── adopted, stop, restart, leave ──▶ stopping
//	starting ── died ──▶ backoff
//	starting ── refused, died ──▶ failed
//	starting ── unsafe ──▶ blocked
//	running  ── left ──▶ stopped
//	running  ── died, renewed, left ──▶ starting
//	running  ── stop, restart, leave, upgrade ──▶ stopping
//	running  ── died ──▶ backoff
//	running  ── died ──▶ failed
//	running  ── unsafe ──▶ blocked
//	stopping ── stopped, died, left, renewed ──▶ stopped
//	stopping ── stopped, died, left, renewed ──▶ starting
//	stopping ── busy, kept ──▶ running
//	stopping ── unsafe ──▶ failed
//	stopping ── unsafe ──▶ blocked
//	backoff  ── start, appear, timer ──▶ starting
//	backoff  ── stop, restart ──▶ stopping
//	failed   ── start, appear, upgrade ──▶ starting
//	failed   ── stop, restart ──▶ stopping
//	blocked  ── start, appear, timer ──▶ starting
//	blocked  ── stop, restart ──▶ stopping
//
// The loop (loop.go) feeds it and performs its effects. At most one act is
// under way, a launch or a halt, and each has a number, so that what an outdated
// act or timer reports changes nothing. A launch adopts a living server, or
// proves by the server's own lock that none is up, parks, and starts one. While
// an incarnation lives it is attended: its events keep the claims, and a waiter
// in the kernel's queue for the server's lock parks the moment the server is
// gone, before anybody is told of its end. Between two acts the supervisor can
// also hand over (input hand): it ends, and the next one adopts its server.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// Options is what a supervisor is given.
type Options struct {
	Version string         // ours, for status
	Paths   platform.Paths // where our files are
	Config  Config
	Environ []string     // the server's environment, before all additions; nil takes the process's
	Log     *slog.Logger // nil discards
	Policy  Policy       // zero takes DefaultPolicy
	Manager Manager      // who keeps us running; nil when nobody does
	Program string       // our own, as ThisProgram has it, to notice when it is replaced; "" doesn't
	Power   PowerSource  // what the machine is about to do; nil is platform.WatchPower

	// LoginEnvironment gives the server what the user's login shell exports too: a
	// service manager gives little.
	LoginEnvironment bool
	// Fault is why Config is not the user's, which can't be read: a supervisor that a
	// manager keeps comes all the same, since without one nobody keeps what is unfinished
	// from being resumed. It adopts and parks, and starts no server. nil is none.
	Fault    error
	askLogin askLogin          // for tests; nil is platform.LoginEnvironment
	reveal   func(*supervisor) // is given the one that runs, at its beginning; nil is none

	finish bool // take over what was left, stop it, and end
}

// AlreadyRunningError says that another supervisor holds the instance lock.
type AlreadyRunningError struct{ Lock string }

func (e *AlreadyRunningError) Error() string {
	return fmt.Sprintf("another intermission is running already (it holds %s); see it with: intermission status", e.Lock)
}

// Run supervises until ctx ends, then stops the server gracefully, which parks
// and suspends, and returns; or until it hands over to the next supervisor, and
// then returns ErrHandedOver, the server untouched. It fails at once when another supervisor runs or
// our own directories or socket can't be had; every other fault keeps it up, in
// phase blocked or failed, with the reason in its status.
func Run(ctx context.Context, o Options) error {
	err := run(ctx, o)
	if errors.Is(err, ErrHandedOver) && ctx.Err() != nil && !o.finish {
		// Whoever keeps us wants an end, and nobody may come to take over.
		o.finish = true
		err = run(context.WithoutCancel(ctx), o)
		if other := new(AlreadyRunningError); errors.As(err, &other) {
			return ErrHandedOver // somebody has
		}
	}
	return err
}

// run is Run, but for an end that is asked for when the handover has been decided.
func run(ctx context.Context, o Options) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Policy == (Policy{}) {
		o.Policy = DefaultPolicy
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	for _, dir := range []string{o.Paths.State, o.Paths.Runtime} {
		if err := platform.EnsurePrivateDir(dir); err != nil {
			return err
		}
	}
	if err := platform.EnsurePrivateDir(o.Paths.Log); err != nil {
		o.Log.Error("there is no log", "error", err)
	}
	lock, err := patiently(ctx, platform.TryLock, o.Paths.InstanceLock)
	if errors.Is(err, platform.ErrLocked) {
		return &AlreadyRunningError{Lock: o.Paths.InstanceLock}
	}
	if err != nil {
		return fmt.Errorf("cannot take the instance lock: %w", err)
	}
	defer lock.Unlock() //nolint:errcheck // it ends with the process at the latest
	faultpoint.At(faultpoint.StartInstance)
	// The same state with another runtime directory (a session with XDG_RUNTIME_DIR,
	// a job without) must not be supervised twice either.
	state, err := patiently(ctx, platform.TryLockDir, o.Paths.State)
	if errors.Is(err, platform.ErrLocked) {
		return &AlreadyRunningError{Lock: o.Paths.State}
	}
	if err != nil {
		return fmt.Errorf("cannot lock the state directory: %w", err)
	}
	defer state.Unlock() //nolint:errcheck // it ends with the process at the latest

	// What outlives a halt (streams, followers) ends with Run, not with ctx.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	out := outputAt(life, filepath.Join(o.Paths.Log, "server.log"), o.Config.Log.MaxSize, o.Config.Log.Keep)
	if err := out.open(); err != nil {
		o.Log.Error("no server is started", "error", err)
	}
	listener, err := platform.Listen(o.Paths.Socket)
	if err != nil {
		return err
	}
	if err := o.Paths.RecordSocket(); err != nil {
		o.Log.Warn("a shell with another environment won't find us", "error", err)
	}
	s := &supervisor{
		Options: o, life: life, out: out, since: time.Now(),
		inputs: make(chan submission), left: make(chan struct{}),
		changed: make(chan struct{}), located: make(chan struct{}, 1),
	}
	s.keep()
	s.roster = newRoster(s.notify)
	s.recallWish()
	served := make(chan error, 1)
	go func() { served <- control.NewServer(s, o.Log).Serve(life, listener) }()

	if o.reveal != nil {
		o.reveal(s)
	}
	if s.kept {
		s.workers.Go(s.tellStatus)
	}
	if s.Program != "" {
		s.workers.Go(s.watchOwn)
	}
	if s.Fault == nil { // else no other program is used either
		s.workers.Go(s.watchProgram)
	}
	s.workers.Go(s.attendPower)
	s.workers.Go(s.attendUpgrades)
	s.loop(ctx)
	if s.state.Handed {
		faultpoint.At(faultpoint.HandoverLeaving)
	}
	unfinished := s.unfinished()
	end()
	err = <-served
	s.workers.Wait()
	s.close()
	if s.state.Handed {
		return errors.Join(ErrHandedOver, err)
	}
	return errors.Join(unfinished, err)
}

// unfinished says what is left to whoever starts a server next: a lock that we keep
// goes with us, and what a stop could not park stays in the server's database.
func (s *supervisor) unfinished() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.Leaving || s.state.Handed || !s.state.Unparked && s.held == nil {
		return nil
	}
	s.Log.Error(ErrUnfinished.Error(), "reason", s.state.Reason) // for who stops the service: not every manager keeps what we end with
	return fmt.Errorf("%w: %s; start no server before intermission runs again", ErrUnfinished, s.state.Reason)
}

// ErrUnfinished says that Run has ended as it was told, and that what is unfinished
// could not be parked before: a server that somebody else starts would resume it.
var ErrUnfinished = errors.New("what is unfinished could not be parked")

// lockPatience is how long a supervisor that was killed may take to be gone whole.
const lockPatience = time.Second

// patiently takes a lock, or gives up when a living supervisor keeps it.
func patiently(ctx context.Context, try func(string) (*platform.Lock, error), path string) (*platform.Lock, error) {
	deadline := time.Now().Add(lockPatience)
	for {
		lock, err := try(path)
		if !errors.Is(err, platform.ErrLocked) || time.Now().After(deadline) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lockPatience / 20):
		}
	}
}

// supervisor is the loop and what it holds. Fields of the second group belong
// to the act under way, which is one at a time; those below mu to all.
type supervisor struct {
	Options
	life    context.Context
	since   time.Time
	out     *output
	inputs  chan submission
	left    chan struct{} // closed by DoLeave
	workers sync.WaitGroup
	act     *act
	kept    bool // a manager listens

	dataLock *platform.Lock
	watching bool // the registrations are watched
	unsure   bool // the wish could not be read

	opening sync.Mutex // of the ledger

	env *environment // belongs to mu; nil before it was asked for

	roster   *roster
	titles   titles
	consents door
	located  chan struct{} // holds one when other programs are to be watched
	outcomes outcomes

	mu        sync.Mutex
	standing  chan struct{}        // closed when the guard of a server that can't be adopted has ended; nil when none stands
	held      *platform.ServerLock // kept by a park that failed, so that nobody starts a server
	install   *opencode.Install    // the program as it was found last; nil before
	offered   *opencode.Install    // the program in place since, which the next start takes; nil when that is install
	lacking   bool                 // the last launch could not start it
	database  *opencode.Database
	newer     string      // version of the intermission in our place; "" when that is us
	newerFile os.FileInfo // its file
	waits     string      // why it can't take over yet; "" when nothing keeps it
	state     State
	ledger    *restart.Ledger  // nil until it could be opened
	resumer   *restart.Resumer // nil as long as ledger
	current   *incarnation     // nil while no server is up, or its end has been reduced
	lastExit  *control.Exit
	changed   chan struct{} // closed and replaced at each change of what is shown
}

// recallWish takes the durable wish as the state to begin with.
func (s *supervisor) recallWish() {
	wish, err := loadWish(s.Paths.State)
	if err != nil {
		// Not knowing the wish, the safe one: nothing is started, and nothing is stopped.
		s.Log.Error("the wish is unreadable; nothing is started", "error", err)
		wish, s.unsure = WishStopped, true
	}
	if s.finish {
		wish = WishStopped // for now: it isn't saved
	}
	s.state = State{Phase: Stopped, Wish: wish}
	if err != nil {
		s.state.Reason = err.Error()
	}
}

// program gives the program as it was found last; nil before.
func (s *supervisor) program() *opencode.Install {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.install
}

// notify wakes all who show the state.
func (s *supervisor) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// openLedger opens the ledger if it isn't open.
func (s *supervisor) openLedger() (*restart.Ledger, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if l, _ := s.book(); l != nil {
		return l, nil
	}
	l, err := restart.Open(s.Paths.Ledger, time.Now)
	if err != nil {
		return nil, err
	}
	l.OnChange(s.notify)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = l
	s.resumer = restart.NewResumer(l, restart.ResumerConfig{
		Concurrency: s.Config.Resume.Concurrency, Text: s.Config.Resume.Text, Settled: s.noteSettled,
	})
	return l, nil
}

// book gives the ledger and its resumer, nil while they can't be opened.
func (s *supervisor) book() (*restart.Ledger, *restart.Resumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger, s.resumer
}

// close ends what is left once the server is down and nobody asks any more. The
// handle on the server's database is left to the end of the process: closing the
// last connection would checkpoint, and hold the file's locks meanwhile.
func (s *supervisor) close() {
	s.roster.clear()      // its timer
	if s.current != nil { // handed over
		s.current.client.Close()
		s.dropShield(s.current)
	}
	l, r := s.book()
	if r != nil {
		r.Close()
	}
	if l != nil {
		if err := l.Close(); err != nil {
			s.Log.Warn("the ledger did not close cleanly", "error", err)
		}
	}
	if s.dataLock != nil {
		_ = s.dataLock.Unlock() // it ends with the process at the latest
	}
	s.out.close()
}
