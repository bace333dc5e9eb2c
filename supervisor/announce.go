package supervisor

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/opencode"
)

// PowerSource tells what the machine is about to do, or has done, until ctx ends: see
// platform.WatchPower. It holds the machine up for as long as handle takes.
type PowerSource func(ctx context.Context, log *slog.Logger, handle func(platform.PowerEvent))

// attendPower writes to the ledger what is at work when the machine's shutdown or
// sleep is announced, and takes that back when it didn't come to it, or is over. In
// between the server goes on: what ends by itself settles its suspension, what starts
// is a claim as ever. So it doesn't matter whether an announcement is followed by
// a stop, by a battery that is empty, or by nothing.
func (s *supervisor) attendPower() {
	source := s.Power
	if source == nil {
		source = platform.WatchPower
	}
	type announcement struct {
		event platform.PowerEvent
		done  chan struct{}
	}
	events := make(chan announcement)
	source(s.life, s.Log, func(e platform.PowerEvent) {
		a := announcement{e, make(chan struct{})}
		select {
		case events <- a:
			<-a.done
		case <-s.life.Done():
		}
	})
	asleep := false // its wake is to come
	var again <-chan time.Time
	for {
		owed := false
		select {
		case a := <-events:
			s.Log.Info("the machine's power", "event", a.event)
			switch a.event {
			case platform.PowerShutdown:
				s.foresee()
			case platform.PowerSleep:
				asleep = true
				s.foresee()
			case platform.PowerWake:
				asleep = false
				owed = !s.goOn()
			case platform.PowerStays:
				owed = !asleep && !s.goOn()
			}
			close(a.done)
		case <-again:
			owed = !s.goOn()
		case <-s.life.Done():
			return
		}
		if again = nil; owed {
			again = time.After(catchUpAfter)
		}
	}
}

// attended gives the server that is up, nil while none is, or while it ends or is being
// stopped: a stop suspends by itself, and an end is parked.
func (s *supervisor) attended() *incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.current; c != nil && !c.over() && !c.guard.stopping.Load() {
		return c
	}
	return nil
}

// foresee writes down what is at work, for the server may be gone soon without a word.
func (s *supervisor) foresee() {
	if c := s.attended(); c != nil {
		_ = s.suspend(s.life, c) // it is logged, and claims tell too
	}
}

// goOn makes claims again of what was written down, and has the connection to the
// server checked: nothing tells by itself whether it has outlived a sleep. False
// when the ledger can't be written.
func (s *supervisor) goOn() bool {
	c := s.attended()
	if c == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	defer c.client.Reconnect() // and with it comes a resync
	ledger, _ := s.book()
	c.aborts.Lock()
	defer c.aborts.Unlock()
	if c.guard.stopping.Load() { // a stop has begun meanwhile, and will suspend, or has
		return true
	}
	if err := ledger.Unsuspend(ctx); err != nil {
		s.Log.Error("sessions that go on stay written down as suspended; trying again", "error", err)
		return false
	}
	s.workers.Go(func() { s.checkHealth(c) })
	return true
}

// checkHealth says it when the server doesn't answer any more after a wake. What is to
// be done about that is its user's to decide: it may only be slow to wake, too.
func (s *supervisor) checkHealth(c *incarnation) {
	if err := opencode.Health(s.life, c.Incarnation); err != nil && s.life.Err() == nil && !c.over() {
		s.Log.Warn("the server is up, but "+err.Error()+"; if that lasts: intermission restart", "pid", c.Identity.PID)
	}
}

// withoutAnnounced leaves out what was only written down in case the server ends: as
// long as it isn't being stopped, these sessions are at work, and not pending.
func (s *supervisor) withoutAnnounced(list []restart.Suspension) []restart.Suspension {
	if s.attended() == nil {
		return list
	}
	return slices.DeleteFunc(list, func(p restart.Suspension) bool { return p.Announced })
}
