package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/opencode"
)

// askTimeout bounds each question to a server that is to be stopped.
const askTimeout = 2 * time.Second

// halt stops the server, all under one deadline: what is active goes to the
// ledger before anything else, then the server is asked, then told, then
// killed. The database has the last word on what was at work, in the park at its
// end. Where that could not be written down, the server goes on, unless we are told
// to end ourselves.
func (s *supervisor) halt() Input {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c == nil {
		c = s.attendLeft() // of which a launch was cut off that would have adopted it
	}
	if c == nil {
		return s.haltUnattended()
	}
	faultpoint.At(faultpoint.StopAsked)
	limit := s.stopLimit()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), limit)
	defer cancel()
	if err := s.proveRoom(); err != nil && s.goesOn(c) {
		return s.notStopped(err)
	}
	c.guard.stopping.Store(true)
	if err := s.suspend(ctx, c); err != nil && s.goesOn(c) {
		c.guard.stopping.Store(false)
		return s.notStopped(err)
	}
	faultpoint.At(faultpoint.StopSuspended)
	tree, err := platform.Tree(ctx, c.Identity, c.marker())
	if err != nil {
		s.Log.Warn("cannot list the server's processes before the stop", "error", err)
	}
	held := s.bringDown(ctx, c, tree, limit)
	faultpoint.At(faultpoint.StopGone)
	select {
	case <-c.done:
	case <-ctx.Done():
		if !c.over() || !c.concludedWithin(s.parkPatience()) {
			return s.stopFailed(c, limit, held)
		}
	}
	faultpoint.At(faultpoint.StopParked)
	// Those that were reparented and have lost the marker are known from before.
	platform.KillTree(ctx, tree, toolGrace)
	if c.guard.err != nil {
		return Input{Kind: InUnsafe, Reason: c.guard.err.Error(), Retry: true}
	}
	return Input{Kind: InStopped, Reason: held}
}

// parkPatience is for how long, after a stop's own time is up, the end of a server may
// still be dealt with: a park that waits for a locked database ends by itself, and is
// tried again. When we are to end, that has to do without.
func (s *supervisor) parkPatience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Leaving {
		return 3 * toolGrace
	}
	return parkTimeout + 3*toolGrace
}

// parkRoom is what a park may need on the ledger's disk, in bytes: rows of the
// server's database, as they are.
const parkRoom = 256 << 10

// proveRoom makes sure that there is room for a park, and that it can be written to.
func (s *supervisor) proveRoom() error {
	f, err := os.CreateTemp(filepath.Dir(s.Paths.Ledger), "room-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, parkRoom))
	if err == nil {
		err = f.Sync() // some file systems tell only then
	}
	return errors.Join(err, f.Close())
}

// goesOn gives a halt up that has done nothing yet, and says whether it could: not
// when the server has ended, or when we are to end, which is worth more than a
// ledger that is up to date: the claims that it has, and the database, tell as well.
func (s *supervisor) goesOn(c *incarnation) bool {
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	if st.Leaving {
		return false
	}
	// Its end is reported to this act from now on, unless it has come already.
	c.seq.Store(st.Seq)
	return !c.over()
}

// notStopped says why a halt was given up.
func (s *supervisor) notStopped(err error) Input {
	return Input{Kind: InKept, Reason: fmt.Sprintf("it was not stopped: what it works on could not be written down (%v); see that %s is writable, with room on its disk, and try again", err, filepath.Dir(s.Paths.Ledger))}
}

// suspend writes what is at work to the ledger, and what it waits for.
func (s *supervisor) suspend(ctx context.Context, c *incarnation) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ledger, _ := s.book()
	asked := time.Now().UnixMilli()
	active, err := c.client.Active(ctx)
	faultpoint.At(faultpoint.StopActive)
	if err != nil {
		s.Log.Warn("the server doesn't say what is active; its events and the ledger do", "error", err)
		claims, err := ledger.Claims(context.WithoutCancel(ctx))
		if err != nil {
			s.Log.Error("the ledger's claims can't be read", "error", err)
		}
		active = slices.Concat(active, s.roster.ids(), claims)
	}
	c.aborts.Lock()
	active = slices.DeleteFunc(active, func(id string) bool { return s.isAborted(c, id) })
	err = ledger.SuspendIn(context.WithoutCancel(ctx), c.ID, active, asked)
	c.aborts.Unlock()
	if err != nil && c.ended() {
		return nil // all of it is parked
	}
	if err != nil {
		s.Log.Error("what is active could not be written to the ledger", "error", err)
	}
	if err := ledger.SetWaiting(context.WithoutCancel(ctx), s.waiting(ctx, c, anywhere(active))); err != nil {
		s.Log.Warn("what sessions wait for could not be written to the ledger", "error", err)
	}
	return err
}

// anywhere gives sessions whose directories aren't known.
func anywhere(ids []string) map[string]string {
	sessions := make(map[string]string, len(ids))
	for _, id := range ids {
		sessions[id] = ""
	}
	return sessions
}

// stopFailed says what kept the server, or its end, from being dealt with within limit.
func (s *supervisor) stopFailed(c *incarnation, limit time.Duration, held string) Input {
	if c.over() {
		return Input{Kind: InUnsafe, Reason: "the server has ended, but what it left could not be parked in time; look at the supervisor's log, then: intermission stop"}
	}
	c.guard.stopping.Store(false)
	c.client.Unquiesce()
	ledger, _ := s.book()
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	if err := ledger.Unsuspend(ctx); err != nil {
		s.Log.Error("the suspensions of a stop that failed stay", "error", err)
	}
	if err := s.resync(ctx, c); err != nil {
		s.Log.Warn("what is active is not known", "error", err)
	}
	return Input{Kind: InUnsafe, Reason: fmt.Sprintf("the server (pid %d) did not end within %s, not even at SIGKILL (%s); look at it with ps, then: intermission stop", c.Identity.PID, limit, held)}
}

// bringDown escalates until the server has ended: its API within half of the
// time, SIGTERM until four fifths of it, then SIGKILL; the rest is for its end to
// be dealt with. Where it had to be killed, it says what held it up.
func (s *supervisor) bringDown(ctx context.Context, c *incarnation, tree []platform.Identity, limit time.Duration) (held string) {
	deadline, _ := ctx.Deadline()
	part := func(n int) time.Time { return deadline.Add(-limit * time.Duration(10-n) / 10) }
	ask, cancel := context.WithDeadline(ctx, part(5))
	defer cancel()
	accepted := false
	var err error
	if c.Generation == opencode.V1 {
		if err = c.client.Quiesce(ask); err == nil {
			waitAll(ask, without(tree, c.Identity))
		}
	} else {
		accepted, err = c.client.Stop(ask)
	}
	faultpoint.At(faultpoint.StopTold)
	if err != nil {
		s.Log.Warn("the server doesn't stop when asked", "error", err)
	}
	if accepted && goneBy(c, part(5)) {
		return ""
	}
	if holding := s.holding(c, tree); holding != "" {
		s.Log.Warn("the server doesn't end when asked; it is told now", "pid", c.Identity.PID, "held up by", holding)
	}
	s.tell(c, platform.Terminate)
	if goneBy(c, part(8)) {
		return ""
	}
	held = "it did not end when told"
	if holding := s.holding(c, tree); holding != "" {
		held += ", held up by " + holding
	}
	s.Log.Warn("the server doesn't end at SIGTERM; killing it", "pid", c.Identity.PID, "why", held)
	s.tell(c, platform.Kill)
	goneBy(c, deadline)
	return held + ", and was killed"
}

// maxHolding is how many sessions and how many processes are named.
const maxHolding = 5

// holding names what is still at work in a server that is to end: its sessions, as
// far as events told, and its processes; "" for nothing.
func (s *supervisor) holding(c *incarnation, tree []platform.Identity) string {
	var pids []string
	for _, id := range without(tree, c.Identity) {
		if id.Alive() {
			pids = append(pids, strconv.Itoa(id.PID))
		}
	}
	var parts []string
	for _, of := range []struct {
		what string
		who  []string
	}{{"sessions", s.roster.ids()}, {"processes", pids}} {
		if n := len(of.who); n > maxHolding {
			of.who = append(of.who[:maxHolding:maxHolding], fmt.Sprintf("and %d more", n-maxHolding))
		}
		if len(of.who) > 0 {
			parts = append(parts, of.what+" "+strings.Join(of.who, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// tell signals the server, by its identity.
func (s *supervisor) tell(c *incarnation, sig platform.Sig) {
	err := c.Identity.Signal(sig)
	if err != nil && !errors.Is(err, platform.ErrNoProcess) {
		s.Log.Error("cannot signal the server", "pid", c.Identity.PID, "error", err)
	}
}

// goneBy waits until the server's process has ended, or the deadline has come.
func goneBy(c *incarnation, deadline time.Time) bool {
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-c.gone:
		return true
	case <-t.C:
		return false
	}
}

// waitAll waits until all processes have ended, or ctx.
func waitAll(ctx context.Context, ids []platform.Identity) {
	for _, id := range ids {
		gone, err := platform.Watch(ctx, id)
		if err != nil {
			continue // it has ended already
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return
		}
	}
}

func without(ids []platform.Identity, one platform.Identity) []platform.Identity {
	var out []platform.Identity
	for _, id := range ids {
		if id != one {
			out = append(out, id)
		}
	}
	return out
}

// attendLeft adopts the server that was left to us, so that it is stopped in order; nil
// where none lives, or it can't be had at once.
func (s *supervisor) attendLeft() *incarnation {
	r, ok := loadRecord(s.Paths.ServerRecord)
	s.mu.Lock()
	ready := s.dataLock != nil && s.database != nil && s.ledger != nil
	s.mu.Unlock()
	if !ok || !ready || !r.Ready || !r.Identity.Alive() || s.holdsLock() {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	found, err := s.lookForLiving(ctx, r)
	if err != nil || found.ID != r.ID {
		return nil
	}
	s.standGuard() // until it is attended
	// Its end is this stop's to tell, and reported to no other act.
	if in := s.begun(found, record{}, nil, nil, 0, InAdopted); in.Kind != InAdopted {
		s.Log.Warn("the server that is to be stopped can't be adopted", "pid", r.Identity.PID, "reason", in.Reason)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// haltUnattended ends a server of ours that we never came to attend: it doesn't
// answer, or its launch was cancelled. Only what the record identifies is
// signalled. What it left is parked.
func (s *supervisor) haltUnattended() Input {
	r, ok := loadRecord(s.Paths.ServerRecord)
	s.mu.Lock()
	ready := s.dataLock != nil && s.database != nil
	s.mu.Unlock()
	switch {
	case !ok && ready && s.holdsLock(): // what an earlier one left could not be parked
		if err := s.parkLocked(record{}, restart.CauseParked); err != nil {
			return Input{Kind: InUnsafe, Reason: err.Error(), Retry: true}
		}
		return Input{Kind: InStopped}
	case !ok:
		return Input{Kind: InStopped}
	case !ready && r.Identity.Alive():
		return Input{Kind: InUnsafe, Reason: fmt.Sprintf("the server (pid %d) runs, and can't be stopped without losing what it works on; solve what status says first", r.Identity.PID)}
	case !ready:
		return Input{Kind: InStopped}
	}
	s.sweepProcesses(r)
	if r.Identity.Alive() {
		return Input{Kind: InUnsafe, Reason: fmt.Sprintf("the server (pid %d) could not be ended; look at it with ps, then: intermission stop", r.Identity.PID)}
	}
	if err := s.parkLocked(r, restart.CauseShutdown); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error(), Retry: true}
	}
	removeRecord(s.Paths.ServerRecord)
	return Input{Kind: InStopped}
}
