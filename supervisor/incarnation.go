package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// incarnation is one run of the server that we attend, from readiness to the
// end of its last process.
type incarnation struct {
	record
	start  *starting // what we started; nil when it was adopted
	client *opencode.Client
	seq    atomic.Uint64      // the act that its end is reported to
	quit   context.CancelFunc // ends its event stream

	gone  chan struct{} // closed when its process has ended
	guard *guard        // parks what it leaves
	done  chan struct{} // closed when its end has been dealt with: parked, its processes ended
	exit  platform.Exit // valid after gone; Code -1 when it can't be had

	// shield is the lock of the name that the server's lock had before its file was
	// removed: as long as we hold it, nobody starts a second server beside this one.
	shield atomic.Pointer[platform.ServerLock]
	behind atomic.Bool                         // the ledger has missed an event
	tree   atomic.Pointer[[]platform.Identity] // its processes, as last seen, where they carry no mark
	asked  *asked
	begun  *asked        // of them it has to be found out whose subagents they are
	moved  chan struct{} // holds one when a session has done something

	// aborts is of what follows, and held while an event is taken in and while what is
	// active is suspended, so that an interrupt comes wholly before or after.
	aborts sync.Mutex
	// aborted holds, by session, the executions that are being interrupted through us:
	// once that is accepted they end by their user's doing, also while the server is
	// being stopped.
	aborted map[string]*abort
}

// abort is what interrupts of the execution started have in common.
type abort struct {
	started  int64
	underWay int  // how many have not been answered
	accepted bool // one was, by the server; until then all may fail, and a stop be what ends the execution
}

// remember notes the processes of an adopted server while it lives: what it
// starts carries no mark of ours, and once it has died nothing leads to them.
func (c *incarnation) remember(ctx context.Context) {
	if tree, err := platform.Tree(ctx, c.Identity, ""); err == nil {
		c.tree.Store(&tree)
	}
}

// over says that its process has ended.
func (c *incarnation) over() bool { return closed(c.gone) }

// ended says that its process has ended, and what it left is parked.
func (c *incarnation) ended() bool { return c.over() && closed(c.guard.parked) }

// concluded says that its end has been dealt with.
func (c *incarnation) concluded() bool { return closed(c.done) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// concludedWithin waits for the end of the server to be dealt with: it is gone,
// but a tool of its may take its time.
func (c *incarnation) concludedWithin(d time.Duration) bool {
	select {
	case <-c.done:
		return true
	case <-time.After(d):
		return false
	}
}

// attend begins to watch an incarnation that is ready. Its end is reported as an input of act seq.
func (s *supervisor) attend(r record, st *starting, g *guard, seq uint64) error {
	gone, err := platform.Watch(s.life, r.Identity)
	if err != nil && !errors.Is(err, platform.ErrNoProcess) {
		return fmt.Errorf("cannot watch the server: %w", err)
	}
	c := &incarnation{
		record: r, start: st,
		client: opencode.Connect(r.Incarnation), guard: g,
		gone: make(chan struct{}), done: make(chan struct{}), aborted: map[string]*abort{}, asked: newAsked(), begun: newAsked(), moved: make(chan struct{}, 1),
	}
	c.seq.Store(seq)
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
	s.mu.Unlock()
	s.roster.clear()
	if st == nil {
		s.roster.touch() // how long nothing has been active in it isn't known
	}
	if c.Generation == opencode.V2 {
		s.shieldLock() // its file may have been removed while it started
	}
	s.workers.Go(func() { s.listen(ctx, c) })
	s.workers.Go(func() { s.attendAsked(ctx, c) })
	s.workers.Go(func() { s.attendBegun(ctx, c) })
	s.workers.Go(func() { s.attendTitles(ctx, c) })
	s.workers.Go(func() { c.await(s.life, gone) })
	s.workers.Go(func() { s.lose(c.guard, c.gone) })
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
func (c *incarnation) await(ctx context.Context, gone <-chan struct{}) {
	c.exit = platform.Exit{Code: -1}
	switch {
	case c.start != nil && c.Spawned == c.Identity:
		select {
		case <-c.start.ended:
			c.exit = c.start.exit
		case <-ctx.Done():
			return
		}
	case gone != nil:
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
	}
	close(c.gone)
}

// listen keeps the claims by the server's events, and what was missed by asking again.
func (s *supervisor) listen(ctx context.Context, c *incarnation) {
	ledger, resumer := s.book()
	take := func(e restart.Event) {
		c.aborts.Lock()
		defer c.aborts.Unlock()
		e = s.judge(c, e)
		if err := ledger.Apply(ctx, e); err != nil && ctx.Err() == nil {
			s.Log.Error("an event could not be written to the ledger", "session", e.Session, "event", e.Kind, "error", err)
			c.behind.Store(true)
		}
		resumer.Observe(e)
		s.roster.observe(e)
	}
	handle := func(e restart.Event) {
		failed := s.failure(ctx, ledger, e)
		take(e)
		if failed != nil {
			s.noteOutcome(*failed)
		}
	}
	asides := make(chan struct{}, 1)
	defer close(asides)
	s.workers.Go(func() { s.attendAside(ctx, c, asides) })
	handleAll := func(e restart.Event) {
		if e.Kind != restart.EventAsked {
			handle(e)
		}
		if e.Kind == restart.EventAsked || e.Kind == restart.EventProgress && s.roster.waits(e.Session) {
			c.asked.add(e.Directory, e.Session)
		}
		switch e.Kind {
		case restart.EventStarted:
			c.begun.add("", e.Session)
		case restart.EventProgress:
			wake(c.moved)
		}
		wake(asides)
	}
	resync := func(ctx context.Context) error { return s.resync(ctx, c) }
	if err := c.client.Events(ctx, handleAll, resync); err != nil && ctx.Err() == nil {
		s.Log.Error("the server's events are lost", "error", err)
	}
}

// wake has c hold one: whoever takes it does what is due, for all who woke it.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// judge tells whose doing the end of a turn is. v1 ends its turns at our dispose
// with the same mark as at a user's abort. c.aborts is held.
func (s *supervisor) judge(c *incarnation, e restart.Event) restart.Event {
	switch {
	case e.Kind == restart.EventStarted:
		delete(c.aborted, e.Session)
	case e.Kind == restart.EventInterrupted && c.guard.stopping.Load() && c.Generation == opencode.V1 && !s.isAborted(c, e.Session):
		e.Kind = restart.EventShutdown
	}
	return e
}

// isAborted tells whether the server has accepted that the session's newest execution
// is interrupted. c.aborts is held.
func (s *supervisor) isAborted(c *incarnation, id string) bool {
	a := c.aborted[id]
	return a != nil && a.accepted && a.started == s.roster.newest(id)
}

// rememberAfter is how long after an event of an adopted server its processes are
// listed: a tool is announced before its process is there. It also bounds how often.
const rememberAfter = 500 * time.Millisecond

// catchUpAfter is the pause between attempts to bring a ledger up to date that could not be written.
const catchUpAfter = 2 * time.Second

// attendAside does what would hold up the stream, some time after an event.
func (s *supervisor) attendAside(ctx context.Context, c *incarnation, asides <-chan struct{}) {
	due := time.NewTimer(0) // at once: it may have been at work before we came
	defer due.Stop()
	pending := true
	for {
		select {
		case _, ok := <-asides:
			if !ok {
				return
			}
			if !pending {
				due.Reset(rememberAfter)
				pending = true
			}
		case <-due.C:
			pending = false
			if c.Mark == "" {
				c.remember(ctx)
			}
			if c.behind.CompareAndSwap(true, false) && s.resync(ctx, c) != nil {
				c.behind.Store(true) // the ledger's fault isn't over
				due.Reset(catchUpAfter)
				pending = true
			}
		}
	}
}

// resync makes the claims what the server says now, after events may have been missed.
func (s *supervisor) resync(ctx context.Context, c *incarnation) error {
	faultpoint.At(faultpoint.StartSubscribed)
	ledger, _ := s.book()
	asked := time.Now()
	active, err := c.client.Active(ctx)
	if err != nil && c.Generation == opencode.V1 {
		// One directory that can't be asked must not cost the events of all.
		s.Log.Warn("what is active is not known everywhere; what events told stays", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot ask what is active: %w", err)
	}
	if err := ledger.Resync(ctx, active, asked.UnixMilli()); err != nil {
		return err
	}
	c.aborts.Lock()
	clear(c.aborted) // others may execute by now than those that were interrupted
	c.aborts.Unlock()
	since, err := ledger.Since(ctx)
	if err != nil {
		s.Log.Warn("since when sessions are at work is not known", "error", err)
	}
	s.roster.resync(active, asked, since)
	c.asked.add("", active...)
	c.begun.add("", active...)
	err = ledger.Reconcile(ctx, s.database)
	faultpoint.At(faultpoint.StartReconciled)
	return err
}

// conclude is the only way out of an incarnation: once its process has ended and
// its claims are parked, it ends what is left of its processes and reports.
func (s *supervisor) conclude(c *incarnation) {
	select {
	case <-c.gone:
	case <-s.life.Done():
		return
	}
	<-c.guard.parked
	if c.guard.err != nil && s.life.Err() != nil {
		return // the next supervisor finds the record, and parks
	}
	c.quit()
	_, resumer := s.book()
	resumer.SetServer(nil, nil)
	s.sweepProcesses(c.record)
	if tree := c.tree.Load(); tree != nil {
		platform.KillTree(s.life, slices.DeleteFunc(*tree, s.successor(s.life, c.record)), toolGrace)
	}
	tail, _ := s.out.last(20, c.Output)
	s.roster.clear()
	s.setLastExit(c.exit, tail)
	c.client.Close()
	removeRecord(s.Paths.ServerRecord)
	s.dropShield(c)
	in := s.classify(c, tail)
	in.Seq = c.seq.Load()
	close(c.done)
	s.report(in)
	debug.FreeOSMemory() // a large park is the most that we ever hold, and long idle time follows
}

// maxShownLine bounds each of the last lines of a server that a status holds, in bytes.
const maxShownLine = 4 << 10

func (s *supervisor) setLastExit(e platform.Exit, tail []string) {
	for i, line := range tail {
		if len(line) > maxShownLine {
			tail[i] = strings.ToValidUTF8(line[:maxShownLine], "") + "…"
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastExit = &control.Exit{Code: e.Code, Signal: e.Signal, At: time.Now(), Output: tail}
}

// classify tells how an incarnation ended that we did not stop.
func (s *supervisor) classify(c *incarnation, tail []string) Input {
	if c.guard.err != nil {
		return Input{Kind: InUnsafe, Reason: c.guard.err.Error(), Retry: true}
	}
	graceful := c.exit.Code == 0 && c.exit.Signal == ""
	if c.Generation == opencode.V2 {
		graceful = s.endedWell(c.record) && c.exit.Signal == ""
	}
	switch {
	case graceful && c.exit.Code <= 0 && !s.program().Fresh(): // below 0: adopted, not known
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
