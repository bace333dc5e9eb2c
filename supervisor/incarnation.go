package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// incarnation is one run of the server that we attend, from readiness to the
// end of its last process.
type incarnation struct {
	record
	start  *starting // what we started; nil when it was adopted
	client *opencode.Client
	seq    uint64             // the act that its end is reported to
	quit   context.CancelFunc // ends its event stream

	gone  chan struct{} // closed when its process has ended
	guard *guard        // parks what it leaves
	done  chan struct{} // closed when its end has been dealt with: parked, its processes ended
	exit  platform.Exit // valid after gone; Code -1 when it can't be had
}

func (c *incarnation) concluded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// guard parks at the end of an incarnation.
type guard struct {
	parked   chan struct{} // closed when what it left in its database is in the ledger, or err says why not
	err      error         // valid after parked
	stopping atomic.Bool   // we began to stop it
	record   atomic.Pointer[record]
}

// attend begins to watch an incarnation that is ready. Its end is reported as an input of act seq.
func (s *supervisor) attend(r record, st *starting, g *guard, seq uint64) error {
	gone, err := platform.Watch(s.life, r.Identity)
	if err != nil && !errors.Is(err, platform.ErrNoProcess) {
		return fmt.Errorf("cannot watch the server: %w", err)
	}
	c := &incarnation{
		record: r, start: st, seq: seq,
		client: opencode.Connect(r.Incarnation), guard: g,
		gone: make(chan struct{}), done: make(chan struct{}),
	}
	if c.guard == nil {
		c.guard = s.guardOf(r, c.gone)
	}
	if s.Config.Resume.Text != "" {
		c.client.Text = s.Config.Resume.Text
	}
	ctx, quit := context.WithCancel(s.life)
	c.quit = quit
	ledger, resumer := s.book()
	s.watchDirectories(ctx, c)
	// What an earlier supervisor was delivering, before anything new is.
	if err := ledger.Recover(ctx, c.client.Lookup, s.database); err != nil {
		s.Log.Error("resumes that were under way could not be decided", "error", err)
	}
	resumer.SetServer(c.client, s.database)
	s.mu.Lock()
	s.current = c
	clear(s.active)
	s.mu.Unlock()
	s.workers.Go(func() { s.listen(ctx, c) })
	s.workers.Go(func() { c.await(gone) })
	s.workers.Go(func() { s.conclude(c) })
	return nil
}

// watchDirectories tells a client of v1 in which directories sessions were at work
// before it was connected: v1 says what is active by directory only.
func (s *supervisor) watchDirectories(ctx context.Context, c *incarnation) {
	if c.Generation != opencode.V1 {
		return
	}
	ledger, _ := s.book()
	claims, err := ledger.Claims(ctx)
	if err == nil && len(claims) > 0 {
		var known map[string]restart.Description
		known, err = s.database.Describe(ctx, claims)
		for _, d := range known {
			c.client.Watch(d.Directory)
		}
	}
	if err != nil {
		s.Log.Warn("sessions at work in directories that are not known may be missed", "error", err)
	}
}

// await closes gone at the end of the process, with its exit where it is our child.
func (c *incarnation) await(gone <-chan struct{}) {
	c.exit = platform.Exit{Code: -1}
	switch {
	case c.start != nil && c.Spawned == c.Identity:
		<-c.start.ended
		c.exit = c.start.exit
	case gone != nil:
		<-gone
	}
	close(c.gone)
}

// listen keeps the claims by the server's events, and what was missed by asking again.
func (s *supervisor) listen(ctx context.Context, c *incarnation) {
	ledger, resumer := s.book()
	handle := func(e restart.Event) {
		if e.Kind == restart.EventInterrupted && c.guard.stopping.Load() && c.Generation == opencode.V1 {
			// v1 ends its turns at our dispose with the same mark as at a user's abort.
			e.Kind = restart.EventShutdown
		}
		if err := ledger.Apply(ctx, e); err != nil && ctx.Err() == nil {
			s.Log.Error("an event could not be written to the ledger", "session", e.Session, "event", e.Kind, "error", err)
		}
		resumer.Observe(e)
		s.observe(e)
	}
	resync := func(ctx context.Context) error { return s.resync(ctx, c) }
	if err := c.client.Events(ctx, handle, resync); err != nil && ctx.Err() == nil {
		s.Log.Error("the server's events are lost", "error", err)
	}
}

// observe keeps the set of sessions that execute now.
func (s *supervisor) observe(e restart.Event) {
	s.mu.Lock()
	was := s.active[e.Session]
	switch e.Kind {
	case restart.EventStarted:
		s.active[e.Session] = true
	case restart.EventProgress:
	default:
		delete(s.active, e.Session)
	}
	differs := was != s.active[e.Session]
	s.mu.Unlock()
	if differs {
		s.notify()
	}
}

// resync makes the claims what the server says now, after events may have been missed.
func (s *supervisor) resync(ctx context.Context, c *incarnation) error {
	ledger, _ := s.book()
	asked := time.Now().UnixMilli()
	active, err := c.client.Active(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask what is active: %w", err)
	}
	if err := ledger.Resync(ctx, active, asked); err != nil {
		return err
	}
	s.mu.Lock()
	clear(s.active)
	for _, id := range active {
		s.active[id] = true
	}
	s.mu.Unlock()
	s.notify()
	return ledger.Reconcile(ctx, s.database)
}

// guardOf waits for the end of an incarnation that has registered (v2), or whose
// process is watched by gone (v1), and parks. On v2 the kernel hands us the
// server's lock at that moment, whoever ended it, and as long as we hold it no
// other server can start; so nobody sweeps before we have parked.
func (s *supervisor) guardOf(r record, gone <-chan struct{}) *guard {
	g := &guard{parked: make(chan struct{})}
	g.record.Store(&r)
	s.workers.Go(func() {
		defer close(g.parked)
		if s.install.LockPath() != "" {
			g.err = s.parkAtLock(g)
			return
		}
		select {
		case <-gone:
			g.err = s.park(*g.record.Load(), g.cause(), nil)
		case <-s.life.Done():
			g.err = s.life.Err()
		}
	})
	return g
}

func (s *supervisor) parkAtLock(g *guard) error {
	for {
		lock, err := platform.WaitServerLock(s.life, s.install.LockPath())
		if err != nil {
			return fmt.Errorf("cannot wait for the server's lock: %w", err)
		}
		r := *g.record.Load()
		if s.gone(r, exitPatience) {
			return s.parkUnder(lock, r, g.cause())
		}
		// The lock is no proof: its file was replaced under the server. Its end is.
		s.release(lock)()
		s.Log.Warn("the server lives, but has lost its lock", "pid", r.Identity.PID)
		if !s.gone(r, 0) {
			return s.life.Err()
		}
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

// cause is what the suspensions of an incarnation that ends now are put down to.
func (g *guard) cause() restart.Cause {
	if g.stopping.Load() {
		return restart.CauseShutdown
	}
	return restart.CauseCrash
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
	if err := s.park(r, cause, s.release(lock)); err != nil {
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

// standGuard waits, once, for the end of a server that can't be adopted, and parks what it leaves.
func (s *supervisor) standGuard() {
	if s.install.LockPath() == "" || !s.guarding.CompareAndSwap(false, true) {
		return
	}
	s.workers.Go(func() {
		defer s.guarding.Store(false)
		lock, err := platform.WaitServerLock(s.life, s.install.LockPath())
		if err != nil {
			return
		}
		s.mu.Lock()
		attended := s.current != nil && !s.current.concluded()
		s.mu.Unlock()
		if attended {
			s.release(lock)() // it came to be adopted, and has a guard of its own
			return
		}
		if err := s.parkUnder(lock, record{}, restart.CauseParked); err != nil {
			s.Log.Error("a server has ended that could not be adopted", "error", err)
		}
		s.submit(Input{Kind: InAppear})
	})
}

// park moves what the server would resume by itself into the ledger. No server
// may be up; release, if not nil, is called as soon as one may be.
func (s *supervisor) park(r record, cause restart.Cause, release func()) error {
	ledger, _ := s.book()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), parkTimeout)
	defer cancel()
	began := time.Now()
	cleared := func() {
		s.Log.Debug("nothing is left that a server would resume", "after", time.Since(began))
		if release != nil {
			release()
		}
	}
	parked, err := ledger.Park(ctx, s.database, restart.ParkOptions{
		Incarnation: r.ID, Cause: cause, At: began.UnixMilli(), Since: r.Since,
		Generation: string(s.install.Generation), Database: s.database.Path(), Cleared: cleared,
	})
	if err != nil {
		return fmt.Errorf("cannot park: %w", err)
	}
	if parked.Claims+parked.Jobs+parked.Suspended > 0 {
		s.Log.Info("parked", "claims", parked.Claims, "jobs", parked.Jobs, "suspended", parked.Suspended, "took", time.Since(began))
	}
	for _, w := range parked.Warnings {
		s.Log.Warn("parked, but", "warning", w)
	}
	return nil
}

// conclude is the only way out of an incarnation: once its process has ended and
// its claims are parked, it ends what is left of its processes and reports.
func (s *supervisor) conclude(c *incarnation) {
	<-c.gone
	<-c.guard.parked
	c.quit()
	_, resumer := s.book()
	resumer.SetServer(nil, nil)
	s.sweepProcesses(c.record)
	tail, _ := s.out.last(20, c.Output)
	s.mu.Lock()
	clear(s.active)
	s.mu.Unlock()
	s.setLastExit(c.exit, tail)
	c.client.Close()
	removeRecord(s.Paths.ServerRecord)
	in := s.classify(c, tail)
	in.Seq = c.seq
	close(c.done)
	s.submit(in)
}

func (s *supervisor) setLastExit(e platform.Exit, tail []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastExit = &control.Exit{Code: e.Code, Signal: e.Signal, At: time.Now(), Output: tail}
}

// classify tells how an incarnation ended that we did not stop.
func (s *supervisor) classify(c *incarnation, tail []string) Input {
	if c.guard.err != nil {
		return Input{Kind: InUnsafe, Reason: c.guard.err.Error()}
	}
	graceful := c.exit.Code == 0 && c.exit.Signal == ""
	if c.Generation == opencode.V2 {
		// A graceful end, whatever the status, removes the registration; a kill leaves it.
		graceful = !s.install.Registered(c.ID)
	}
	switch {
	case graceful && c.exit.Code == 0 && !s.install.Fresh():
		return Input{Kind: InRenewed}
	case graceful:
		return Input{Kind: InLeft, Reason: "the server was stopped from outside; start it with: intermission start"}
	}
	return Input{Kind: InDied, Reason: describeExit(c.exit, tail)}
}

// describeExit says how a process ended, with the last thing it wrote.
func describeExit(e platform.Exit, tail []string) string {
	text := fmt.Sprintf("the server exited with status %d", e.Code)
	switch {
	case e.Signal != "":
		text = "the server was ended by signal " + e.Signal
	case e.Code < 0:
		text = "the server is gone"
	}
	for i := len(tail) - 1; i >= 0; i-- {
		if line := restart.PlainText(tail[i], 200); line != "" {
			return text + "; it last wrote: " + line
		}
	}
	return text + "; it wrote nothing"
}

// sweepProcesses ends what the server left behind: tools outlive it, in sessions
// of their own. A server that has registered meanwhile is spared, even if a tool
// of ours started it.
func (s *supervisor) sweepProcesses(r record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), 10*time.Second)
	defer cancel()
	for {
		left, err := platform.Tree(ctx, r.Identity, r.marker())
		if err != nil {
			s.Log.Error("cannot look for what the server left behind", "error", err)
			return
		}
		left = slices.DeleteFunc(left, s.successor(ctx, r))
		if len(left) == 0 {
			return
		}
		s.Log.Info("ending what the server left behind", "processes", len(left))
		// What is ended may have started more in the meantime: look again.
		if stay := platform.KillTree(ctx, left, toolGrace); len(stay) > 0 {
			s.Log.Error("processes of the server stay", "processes", stay)
			return
		}
	}
}

// successor tells which processes belong to another registered server than r.
func (s *supervisor) successor(ctx context.Context, r record) func(platform.Identity) bool {
	var theirs []platform.Identity
	if inc, err := s.install.Discover(ctx); err == nil && inc.ID != r.ID && (r.Ready || !r.owns(inc.PID)) {
		if id, err := platform.Identify(inc.PID); err == nil {
			theirs, _ = platform.Tree(ctx, id, "")
		}
	}
	return func(id platform.Identity) bool { return slices.Contains(theirs, id) }
}

// toolGrace is how long a tool may take to end at SIGTERM.
const toolGrace = 2 * time.Second
