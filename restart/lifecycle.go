package restart

import (
	"context"
	"fmt"
	"slices"
)

// The words of the journal.
const (
	whatSuspended = "suspended" // a suspension was made
	whatParked    = "parked"    // a claim or job was moved out of the server's database
	whatShown     = "shown"     // a person was shown it
	whatConsented = "consented"
	whatDelivered = "delivered" // the session goes on by our resume
	whatRefused   = "refused"   // put back
	whatUnknown   = "unknown"   // suspended anew, for the outcome can't be known
	whatDismissed = "dismissed"
	whatSettled   = "settled" // went on, ended or vanished without us
)

// Incarnation is one run of the managed server.
type Incarnation struct {
	ID         string
	Generation string // v1 or v2
	Database   string // path of the server's database
	StartedAt  int64  // Unix ms, not later than the start of its first execution
}

// BeginIncarnation records that inc runs, spawned or adopted. Beginning the same
// one again does nothing. It fails while another one has not been ended by Park.
func (l *Ledger) BeginIncarnation(ctx context.Context, inc Incarnation) error {
	return l.change(ctx, func(t *tx) error {
		open, err := t.incarnations("WHERE ended_at IS NULL AND id <> ?", inc.ID)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			return fmt.Errorf("cannot begin incarnation %s: %s has not been parked", inc.ID, open[0].ID)
		}
		return t.exec(`INSERT INTO incarnation (id, generation, database, started_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET ended_at = NULL`, inc.ID, inc.Generation, inc.Database, inc.StartedAt)
	})
}

func (t *tx) incarnations(where string, args ...any) ([]Incarnation, error) {
	rows, err := t.QueryContext(t.ctx, "SELECT id, generation, database, started_at FROM incarnation "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Incarnation
	for rows.Next() {
		var i Incarnation
		if err := rows.Scan(&i.ID, &i.Generation, &i.Database, &i.StartedAt); err != nil {
			return nil, err
		}
		list = append(list, i)
	}
	return list, rows.Err()
}

// running gives the incarnation that has not ended, nil when none.
func (t *tx) running() (*Incarnation, error) {
	list, err := t.incarnations("WHERE ended_at IS NULL")
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// Apply records an event of the running incarnation. Events may come twice, late
// or again: one that is not newer than what is known changes nothing, and none
// does while no incarnation runs.
//
// v1 leaves the same mark for its user's abort and for its dispose: once a stop
// has begun, the caller passes an abort as EventShutdown.
func (l *Ledger) Apply(ctx context.Context, e Event) error {
	if e.Session == "" || e.Kind == EventProgress {
		return nil
	}
	return l.change(ctx, func(t *tx) error {
		inc, err := t.running()
		if err != nil || inc == nil {
			return err
		}
		s, err := find(t, e.Session)
		if err != nil {
			return err
		}
		if s == nil {
			s = &session{ID: e.Session}
		}
		if setBack(e.At, t.now, max(inc.StartedAt, s.Seen, s.LastSuspended, s.Claimed)) {
			e.At = 0
		}
		if e.At != 0 && e.At < inc.StartedAt {
			return nil
		}
		before := *s
		if err := t.apply(s, e, *inc); err != nil || *s == before {
			return err
		}
		t.shown = true
		return t.save(s)
	})
}

func (t *tx) apply(s *session, e Event, inc Incarnation) error {
	at := e.At
	if at == 0 { // it doesn't say: it happened now, whatever our clock has done
		at = max(t.now, s.Seen+1, s.LastSuspended+1, s.Claimed)
	}
	switch e.Kind {
	case EventStarted:
		if e.At == 0 && (s.live() || s.Suspended != 0 && s.Incarnation == inc.ID) {
			return nil // v1 says busy again at each step, also while it is being stopped
		}
		return t.started(s, at, inc)
	case EventSucceeded, EventFailed, EventInterrupted:
		return t.ended(s, at, inc)
	case EventShutdown:
		t.shutdown(s, at, inc)
	case EventDeleted, EventArchived:
		return t.vanished(s, at, "the session was "+string(e.Kind))
	}
	return nil
}

// started sets the claim. A suspension is cleared by a newer execution: it goes
// on without us, unless it is our own resume.
func (t *tx) started(s *session, at int64, inc Incarnation) error {
	if at <= max(s.Seen, s.LastSuspended) {
		return nil
	}
	// Ours is also an execution that was promised to our delivery, and starts now.
	ours := s.Phase == phaseResuming || s.live() && s.Ours && s.Claimed == s.LastSuspended+1
	switch {
	case s.Phase == phaseResuming:
		if err := t.delivered(s, "its execution started"); err != nil {
			return err
		}
	case s.suspension() != 0:
		if err := t.settle(s, "it went on without us"); err != nil {
			return err
		}
	}
	s.claim(at, inc)
	s.Ours = ours
	return nil
}

func (s *session) claim(at int64, inc Incarnation) {
	s.Claimed, s.Seen = at, max(s.Seen, at)
	s.Incarnation, s.Generation, s.Database = inc.ID, inc.Generation, inc.Database
	s.Attempts, s.Waiting, s.Confirmed = 0, "", false
}

// ended clears the claim, and the suspension that was written for it by a stop
// that has not come to its end: it ended by itself.
func (t *tx) ended(s *session, at int64, inc Incarnation) error {
	switch {
	case !s.isNews(at):
		return nil
	case s.live():
		s.unclaim()
	case s.Suspended != 0 && s.Phase == phaseNone && s.Incarnation == inc.ID && !s.Confirmed:
		if err := t.settle(s, "it ended by itself"); err != nil {
			return err
		}
	}
	s.Seen = max(s.Seen, at) // also of an end whose start was missed: a later claim isn't its
	return nil
}

// isNews says that an end at that time is of the claim, and was not seen before. It
// may come in the very millisecond of the start.
func (s *session) isNews(at int64) bool {
	return at >= s.Claimed && (at > s.Seen || at == s.Seen && at == s.Claimed)
}

func (s *session) unclaim() { s.Claimed, s.Ours = 0, false }

// shutdown makes the claim a suspension. A session whose start was missed is
// believed to have been at work, but only if nothing of it was known in this incarnation.
func (t *tx) shutdown(s *session, at int64, inc Incarnation) {
	missed := s.Incarnation != inc.ID && s.suspension() == 0 && at > s.Seen
	if s.live() && s.isNews(at) || missed {
		if missed {
			s.claim(at-1, inc) // it had begun before
		}
		t.suspend(s, CauseShutdown, at)
	}
	s.Seen = max(s.Seen, at)
}

// vanished clears claim and suspension of a session that was deleted or archived.
func (t *tx) vanished(s *session, at int64, why string) error {
	switch {
	case !s.isNews(at):
		return nil
	case s.suspension() != 0 && at > s.suspension():
		if err := t.settle(s, why); err != nil {
			return err
		}
	case s.live():
		s.unclaim()
	}
	s.Seen = max(s.Seen, at)
	return nil
}

// suspend makes a suspension. (session, time) never comes twice, whatever clocks do.
func (t *tx) suspend(s *session, cause Cause, at int64) {
	s.Suspended = max(at, s.LastSuspended+1)
	s.LastSuspended = s.Suspended
	s.Cause, s.Mark, s.Reason, s.Phase, s.Consumed, s.CoveredBy = cause, "", "", phaseNone, 0, ""
	s.Confirmed, s.Obstacle = false, obstacleNone
	t.note(s, whatSuspended, string(cause))
}

// settle ends the suspension, pending or consumed, without our doing. What was
// consumed together with it waits again.
func (t *tx) settle(s *session, why string) error {
	t.note(s, whatSettled, why)
	return t.close(s)
}

// close ends the suspension; the journal has been told how.
func (t *tx) close(s *session) error {
	if s.Phase == phaseQueued || s.Phase == phaseResuming {
		if err := t.uncover(s, ""); err != nil {
			return err
		}
	}
	s.Suspended, s.Consumed, s.Phase, s.CoveredBy, s.Reason = 0, 0, phaseNone, "", ""
	s.LastClaimed, s.Obstacle = s.Claimed, obstacleNone
	s.unclaim()
	return t.exec("UPDATE parked SET done_at = ? WHERE kind = 'job' AND done_at IS NULL AND session = ?", t.now, s.ID)
}

// Suspend writes, before a graceful stop or at the announcement of a shutdown or
// sleep, that the active sessions are suspended at (Unix ms; taken when they were
// asked for). Other claims are dropped, for these sessions are idle. What is
// written can't be consented to before Park has confirmed it. Doing it again adds
// what has become active since.
func (l *Ledger) Suspend(ctx context.Context, active []string, at int64) error {
	return l.SuspendIn(ctx, "", active, at)
}

// SuspendIn is Suspend for the sessions of one incarnation. It fails, and changes
// nothing, when another one runs by now: what waits since the end of the one that was
// asked must not count as at work in its successor. "" takes whichever runs.
func (l *Ledger) SuspendIn(ctx context.Context, incarnation string, active []string, at int64) error {
	return l.change(ctx, func(t *tx) error {
		inc, err := t.running()
		if err != nil {
			return err
		}
		if inc == nil || incarnation != "" && inc.ID != incarnation {
			return fmt.Errorf("cannot suspend: no incarnation runs")
		}
		return t.eachAtWork(active, func(s *session, isActive bool) error {
			switch {
			case !isActive && s.Claimed <= at:
				s.unclaim()
			case isActive && !(s.Suspended != 0 && s.Incarnation == inc.ID):
				return t.suspendActive(s, at, *inc)
			}
			return nil
		})
	})
}

// eachAtWork calls f with each active session and each that has a live claim, and saves what f changed.
func (t *tx) eachAtWork(active []string, f func(s *session, isActive bool) error) error {
	list, err := sessions(t, `WHERE id IN (SELECT value FROM json_each(?))
		OR time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = ''`, ids(active))
	if err != nil {
		return err
	}
	t.keepLoaded(list)
	isActive := make(map[string]bool, len(active))
	for _, id := range active {
		isActive[id] = true
	}
	for _, s := range list {
		if _, asked := isActive[s.ID]; asked {
			isActive[s.ID] = false // known
			if err := f(s, true); err != nil {
				return err
			}
		} else if err := f(s, false); err != nil {
			return err
		}
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(active))) {
		if isActive[id] {
			s := &session{ID: id}
			if err := f(s, true); err != nil {
				return err
			}
			list = append(list, s)
		}
	}
	t.shown = true
	return t.save(list...)
}

func (t *tx) keepLoaded(list []*session) {
	t.loaded = make(map[string]*session, len(list))
	for _, s := range list {
		t.loaded[s.ID] = s
	}
}

// suspendActive suspends a session that the server says it executes.
func (t *tx) suspendActive(s *session, at int64, inc Incarnation) error {
	switch {
	case s.Phase == phaseResuming:
		if err := t.delivered(s, "the server executes it"); err != nil {
			return err
		}
	case s.suspension() != 0:
		if err := t.settle(s, "it went on without us"); err != nil {
			return err
		}
	}
	if !s.live() {
		s.claim(min(at, max(s.Seen+1, inc.StartedAt)), inc)
	}
	t.suspend(s, CauseShutdown, at)
	return nil
}

// Unsuspend takes Suspend back, for the stop was abandoned and the server goes
// on: the suspensions become claims again. Resync then tells which still are.
func (l *Ledger) Unsuspend(ctx context.Context) error {
	return l.change(ctx, func(t *tx) error {
		inc, err := t.running()
		if err != nil || inc == nil {
			return err
		}
		list, err := sessions(t, "WHERE time_suspended IS NOT NULL AND incarnation = ?", inc.ID)
		if err != nil {
			return err
		}
		for _, s := range list {
			claimed, ours := s.Claimed, s.Ours
			if err := t.settle(s, "the server goes on"); err != nil {
				return err
			}
			s.Claimed, s.Ours = claimed, ours
		}
		return t.save(list...)
	})
}

// Resync corrects the claims after events may have been missed: active is what
// the server said it executes, asked at (Unix ms, taken before asking).
func (l *Ledger) Resync(ctx context.Context, active []string, at int64) error {
	return l.change(ctx, func(t *tx) error {
		inc, err := t.running()
		if err != nil || inc == nil {
			return err
		}
		return t.eachAtWork(active, func(s *session, isActive bool) error {
			switch {
			case !isActive && s.Claimed <= at:
				s.unclaim()
			case isActive && !s.live() && !(s.Suspended != 0 && s.Incarnation == inc.ID):
				return t.started(s, max(at, s.Seen+1, s.LastSuspended+1), *inc)
			}
			return nil
		})
	})
}

// SetWaiting records what sessions wait for ("permission", "question"), by
// session. Ask before the server is stopped: afterwards nothing may tell.
func (l *Ledger) SetWaiting(ctx context.Context, waiting map[string]string) error {
	return l.change(ctx, func(t *tx) error {
		t.shown = true
		for id, what := range waiting {
			if err := t.exec("UPDATE session SET waiting = ? WHERE id = ?", what, id); err != nil {
				return err
			}
		}
		return nil
	})
}

// SetParents records, by session, which one each works for. Sessions that the ledger
// doesn't know are left out. Do it while they are at work: a suspension is shown under
// its head from the first moment then.
func (l *Ledger) SetParents(ctx context.Context, parents map[string]string) error {
	if len(parents) == 0 {
		return nil
	}
	return l.change(ctx, func(t *tx) error { return t.setEach("parent_id = each.value", parents) })
}
