package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/opencode"
)

// guard parks at the end of an incarnation.
type guard struct {
	parked   chan struct{} // closed when what it left in its database is in the ledger, or err says why not
	err      error         // valid after parked
	lost     chan struct{} // closed when the server is gone and its lock should be ours by now
	stopping atomic.Bool   // we began to stop it
	record   atomic.Pointer[record]
}

// guardOf waits for the end of an incarnation that has registered (v2), or whose
// process is watched by gone (v1), and parks. On v2 the kernel hands us the
// server's lock at that moment, whoever ended it, and as long as we hold it no
// other server can start; so nobody sweeps before we have parked.
func (s *supervisor) guardOf(r record, gone <-chan struct{}) *guard {
	g := &guard{parked: make(chan struct{}), lost: make(chan struct{})}
	g.record.Store(&r)
	s.workers.Go(func() {
		defer close(g.parked)
		if s.program().LockPath() != "" {
			g.err = s.parkAtLock(g)
			return
		}
		select {
		case <-gone:
			g.err = s.park(*g.record.Load(), s.causeOf(g, r), nil)
		case <-s.life.Done():
			g.err = s.life.Err()
		}
	})
	return g
}

// parkAtLock parks when the server's lock is granted, which proves that it is gone.
// The kernel wakes who waits for a lock, but hands it over to nobody: a starter
// that comes within these microseconds can win it. Then the process's own end
// tells, and we park all the same: the winner boots for a second before it sweeps.
func (s *supervisor) parkAtLock(g *guard) error {
	ctx, abandon := context.WithCancel(s.life)
	defer abandon()
	for {
		lock, err := s.lockOrLoss(ctx, g)
		if err != nil {
			return fmt.Errorf("cannot wait for the server's lock: %w", err)
		}
		faultpoint.At(faultpoint.StartGuard)
		r := *g.record.Load()
		if lock == nil {
			s.Log.Warn("another server took the lock first; parking before it sweeps")
			if err := s.beforeSweep(); err != nil {
				return fmt.Errorf("cannot park: %w", err)
			}
			return s.parkNow(r, s.causeOf(g, r), nil)
		}
		if s.gone(r, exitPatience) {
			return s.parkUnder(lock, r, s.causeOf(g, r))
		}
		// The lock is no proof: its file was replaced under the server. Its end is.
		s.release(lock)()
		s.Log.Warn("the server lives, but has lost its lock", "pid", r.Identity.PID)
		if !s.gone(r, 0) {
			return s.life.Err()
		}
	}
}

// lockOrLoss waits for the server's lock; nil when another server has won it.
func (s *supervisor) lockOrLoss(ctx context.Context, g *guard) (*platform.ServerLock, error) {
	ctx, cancel := context.WithCancel(ctx)
	type grant struct {
		lock *platform.ServerLock
		err  error
	}
	granted := make(chan grant, 1)
	s.workers.Go(func() {
		lock, err := platform.WaitServerLock(ctx, s.program().LockPath())
		granted <- grant{lock, err}
	})
	select {
	case got := <-granted:
		cancel()
		return got.lock, got.err
	case <-g.lost:
	}
	cancel()
	got := <-granted // at once: its context has ended, or it was granted in this moment
	if got.lock != nil {
		return got.lock, nil
	}
	// On a machine that is loaded the grant itself may be late: nobody else has it then.
	if lock, err := platform.TryServerLock(s.program().LockPath()); err == nil {
		return lock, nil
	}
	return nil, s.life.Err()
}

// lossPatience is how long after its process a server's lock may take to be ours.
const lossPatience = 5 * time.Millisecond

// lose tells the guard, some time after its server's process has ended, that it
// need not wait for the lock any longer.
func (s *supervisor) lose(g *guard, gone <-chan struct{}) {
	select {
	case <-gone:
	case <-s.life.Done():
		return
	}
	select {
	case <-g.parked:
	case <-time.After(lossPatience):
		close(g.lost)
	}
}

// exitPatience is how long a process may take to be gone after it let go of its lock.
const exitPatience = 2 * time.Second

// gone waits until the server's process has ended, at most so long; 0 is without limit.
func (s *supervisor) gone(r record, within time.Duration) bool {
	if !r.Ready {
		return true // its identity isn't known yet, its lock is all there is
	}
	gone, err := platform.Watch(s.life, r.Identity)
	if err != nil {
		return true
	}
	var over <-chan time.Time
	if within > 0 {
		t := time.NewTimer(within)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-gone:
		return true
	case <-over:
	case <-s.life.Done():
	}
	return false
}

// causeOf is what the suspensions of an incarnation that has ended are put down to.
func (s *supervisor) causeOf(g *guard, r record) restart.Cause {
	if g.stopping.Load() || s.endedWell(r) {
		return restart.CauseShutdown
	}
	return restart.CauseCrash
}

// endedWell says that a v2 server ended gracefully, whoever asked it to: then it
// has removed its registration; a kill leaves it.
func (s *supervisor) endedWell(r record) bool {
	return r.Ready && r.Generation == opencode.V2 && !s.program().Registered(r.ID)
}

// parkTimeout bounds a park, with all its attempts on a locked database.
const parkTimeout = 15 * time.Second

// release gives what lets go of the server's lock, once: a starter that meets it held gives up.
func (s *supervisor) release(lock *platform.ServerLock) func() {
	return sync.OnceFunc(func() {
		if err := lock.Unlock(); err != nil {
			s.Log.Error("the server's lock was not released", "error", err)
		}
	})
}

// parkUnder parks, and lets go of the server's lock as soon as nothing is left
// that a server would resume. If that can't be, the lock is kept, and with it
// everybody from starting a server, until a later attempt has parked.
func (s *supervisor) parkUnder(lock *platform.ServerLock, r record, cause restart.Cause) error {
	release, released := s.release(lock), false
	err := s.park(r, cause, func() { release(); released = true })
	if err != nil && released {
		return err // all is out of the database, and another server may have started since
	}
	if err != nil {
		s.mu.Lock()
		s.held = lock
		s.mu.Unlock()
		return fmt.Errorf("%w; no server can start meanwhile", err)
	}
	return nil
}

// heldLock takes over the lock that a park that failed has kept; nil when none has.
func (s *supervisor) heldLock() *platform.ServerLock {
	s.mu.Lock()
	defer s.mu.Unlock()
	lock := s.held
	s.held = nil
	return lock
}

func (s *supervisor) holdsLock() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held != nil
}

// standGuard waits, once, for the end of a server that can't be adopted (yet), and
// parks what it leaves. If that can't be, it keeps the lock.
func (s *supervisor) standGuard() {
	install := s.program()
	s.mu.Lock()
	defer s.mu.Unlock()
	if install.LockPath() == "" || s.held != nil || s.standing != nil {
		return
	}
	ended := make(chan struct{})
	s.standing = ended
	s.workers.Go(func() {
		took := s.guardUnattended()
		s.mu.Lock()
		s.standing = nil
		s.mu.Unlock()
		close(ended)
		if took {
			s.report(Input{Kind: InAppear})
		}
	})
}

// guardUnattended says whether the server's end brought a change.
func (s *supervisor) guardUnattended() bool {
	for {
		lock, err := platform.WaitServerLock(s.life, s.program().LockPath())
		if err != nil {
			return false
		}
		faultpoint.At(faultpoint.StartGuard)
		s.mu.Lock()
		attended := s.current != nil && !s.current.ended()
		s.mu.Unlock()
		if attended {
			s.release(lock)() // it came to be adopted, and has a guard of its own
			return false
		}
		// A lock whose file was removed under the server is no proof of its end.
		if r, _ := loadRecord(s.Paths.ServerRecord); !s.gone(r, exitPatience) {
			s.release(lock)()
			s.shieldLock() // where it was adopted meanwhile
			if !s.gone(r, 0) {
				return false
			}
			continue
		}
		if err := s.parkUnder(lock, record{}, restart.CauseParked); err != nil {
			s.Log.Error("what can't be parked keeps the server's lock with us", "error", err)
		}
		return true
	}
}

// relieve waits until no guard stands, so that it doesn't hold the lock against
// the server that is about to be started.
func (s *supervisor) relieve() {
	s.mu.Lock()
	standing := s.standing
	s.mu.Unlock()
	if standing == nil {
		return
	}
	select {
	case <-standing:
	case <-time.After(askTimeout):
	}
}

// alone makes sure that no healthy server works on the database: one of another
// release channel has a lock of its own.
func alone(ctx context.Context, install *opencode.Install) error {
	inc, err := install.Discover(ctx)
	incumbent := new(opencode.IncumbentError)
	switch {
	case err == nil:
		return fmt.Errorf("%s works on the database", inc)
	case errors.As(err, &incumbent) && incumbent.Kind == opencode.Healthy:
		return err
	}
	return nil
}

// park moves what the server would resume by itself into the ledger. No server
// may be up; release, if not nil, is called as soon as one may be.
func (s *supervisor) park(r record, cause restart.Cause, release func()) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), askTimeout)
	defer cancel()
	if err := alone(ctx, s.program()); err != nil {
		return fmt.Errorf("cannot park: %w", err)
	}
	return s.parkNow(r, cause, release)
}

// beforeSweep makes sure, in short time, that the server that took the lock from us
// has not resumed anything yet: what it executes is not to be parked under it.
func (s *supervisor) beforeSweep() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), winnerPatience)
	defer cancel()
	inc, err := s.program().Discover(ctx)
	if err != nil {
		return nil // it isn't healthy yet, and sweeps only then
	}
	client := opencode.Connect(inc)
	defer client.Close()
	if active, err := client.Active(ctx); err != nil || len(active) == 0 {
		return nil
	}
	return fmt.Errorf("%s has resumed sessions by itself", inc)
}

// winnerPatience bounds the look at a server that won the lock. From its start to
// its sweep the real one takes 2 s (seen with 2.1 and 2.2).
const winnerPatience = 100 * time.Millisecond

// parkNow parks without another look at who else is there.
func (s *supervisor) parkNow(r record, cause restart.Cause, release func()) error {
	ledger, err := s.openLedger()
	if err != nil {
		return fmt.Errorf("cannot park: %w", err)
	}
	s.mu.Lock()
	db, install := s.database, s.install
	s.mu.Unlock()
	if db == nil {
		return errors.New("cannot park: the server's database can't be opened")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), parkTimeout)
	defer cancel()
	began := time.Now()
	cleared := func() {
		s.Log.Debug("nothing is left that a server would resume", "after", time.Since(began))
		if release != nil {
			release()
		}
	}
	parked, err := ledger.Park(ctx, db, restart.ParkOptions{
		Incarnation: r.ID, Cause: cause, At: began.UnixMilli(), Since: r.Since,
		Generation: string(install.Generation), Database: db.Path(), Cleared: cleared, Undescribed: true,
	})
	if err != nil {
		return err
	}
	if parked.Claims+parked.Jobs+parked.Suspended > 0 {
		s.Log.Info("parked", "claims", parked.Claims, "jobs", parked.Jobs, "suspended", parked.Suspended, "took", time.Since(began))
	}
	for _, w := range parked.Warnings {
		s.Log.Warn("parked, but", "warning", w)
	}
	s.workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), s.describePatience())
		defer cancel()
		if err := ledger.Describe(ctx, db); err != nil {
			s.Log.Warn("parked, but not described", "error", err)
		}
	})
	return nil
}

// describePatience is how long what was parked may take to be described. When we are
// to end, that comes on top of a stop, its park and the end of tools, and a manager
// kills who takes longer: a title that is missing is the lesser loss.
func (s *supervisor) describePatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Leaving {
		return leaveRest / 3
	}
	return parkTimeout
}
