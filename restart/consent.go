package restart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"intermission/restart/faultpoint"
)

// Ticket is a consent that was counted: the right to deliver once.
type Ticket struct {
	Delivery
	Consent int64  // which consent of this session it is
	Mark    string // the session's mark when it was suspended; "" when it isn't known
}

// TakenError says that the suspension was consented to before and is being
// carried out. It is an ErrNotPending.
type TakenError struct{ State State }

func (e *TakenError) Error() string { return "it is " + string(e.State) + " already" }

// Is makes it an ErrNotPending.
func (e *TakenError) Is(target error) bool { return target == ErrNotPending }

// consumeOne is the guard: of any number that run it for one suspension, one gets the row.
const consumeOne = `UPDATE session SET time_suspended = NULL, consumed = time_suspended, phase = 'queued',
		reason = '', obstacle = '', consent = consent + 1
	WHERE id = ? AND time_suspended = ? AND phase IN ('', 'unknown')
	RETURNING consumed, consent, mark`

// StaleError says that another suspension of the session waits than the one that
// was named. It is an ErrNotPending; its text is whole as it is.
type StaleError struct{ Session string }

func (e *StaleError) Error() string {
	return "that suspension is not the one that waits (it was replaced); see: intermission show " + e.Session
}

// Is makes it an ErrNotPending.
func (e *StaleError) Is(target error) bool { return target == ErrNotPending }

// Consume counts a person's consent to the suspension (id, at). Of any number of
// callers, in any number of processes, one gets the Ticket; the others get
// ErrNotPending, as a *TakenError while it is carried out. What waits under the
// session is consumed together with it. A *RefusedError tells why it can't be
// consented to now.
func (l *Ledger) Consume(ctx context.Context, id string, at int64) (Ticket, error) {
	var ticket Ticket
	err := l.change(ctx, func(t *tx) error {
		under, err := t.decidable(id, at)
		if err != nil {
			return err
		}
		err = t.QueryRowContext(ctx, consumeOne, id, at).Scan(&ticket.Suspended, &ticket.Consent, &ticket.Mark)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotPending
		}
		if err != nil {
			return err
		}
		return t.consumed(&ticket, id, under)
	})
	return ticket, err
}

// consumed fills the ticket and takes along what waits under the session.
func (t *tx) consumed(ticket *Ticket, id string, under []*session) error {
	s, err := find(t, id)
	if err != nil {
		return err
	}
	t.note(s, whatConsented, "")
	for _, c := range under {
		c.Consumed, c.Suspended, c.Phase, c.CoveredBy, c.Reason = c.Suspended, 0, phaseCovered, id, ""
		t.note(c, whatConsented, "together with "+id)
	}
	if err := t.save(under...); err != nil {
		return err
	}
	return t.fill(&ticket.Delivery, s)
}

// fill makes the delivery of a session that was consumed.
func (t *tx) fill(d *Delivery, s *session) error {
	jobs, err := openJobs(t, `session = ? OR session IN (SELECT id FROM session WHERE covered_by = ?)`, s.ID, s.ID)
	if err != nil {
		return err
	}
	about := s.description()
	*d = Delivery{Session: s.ID, Directory: about.Directory, Suspended: s.suspension(), Text: jobsText(jobs), Agent: about.Agent, Model: about.Model}
	return nil
}

// jobsText tells a session of the background jobs that were lost; "" when none was.
func jobsText(jobs []Job) string {
	if len(jobs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("The server was restarted. These background jobs are gone; their outcome is unknown and they will not be run again:")
	for _, j := range jobs {
		fmt.Fprintf(&b, "\n- %s: %s", PlainText(j.Kind, 20), PlainText(j.Text, 500))
	}
	return b.String()
}

// decidable gives what waits under the head id, or why nobody can decide about it now.
func (t *tx) decidable(id string, at int64) (under []*session, err error) {
	f, err := loadFamily(t)
	if err != nil {
		return nil, err
	}
	s := f.waits[id]
	switch {
	case s == nil:
		return nil, ErrNotPending
	case s.Consumed == at && s.flying():
		return nil, &TakenError{State: s.state(nil)}
	case s.Suspended == 0 || s.Suspended != at:
		return nil, ErrNotPending
	}
	if head := f.head(id); head != id {
		return nil, &RefusedError{Reason: "it waits under its parent session " + head + "; decide about that one"}
	}
	inc, err := t.running()
	if err != nil {
		return nil, err
	}
	under = f.under(id)
	if slices.ContainsFunc(append(under, s), func(s *session) bool { return s.ending(inc) }) {
		return nil, &RefusedError{Reason: stopping}
	}
	return under, nil
}

const stopping = "the server that runs it is being stopped; decide when it has stopped"

// fetch gives the row that the ticket was made for, if that consent is still being carried out.
func (t *tx) fetch(ticket Ticket, phases ...phase) (*session, error) {
	s, err := find(t, ticket.Session)
	if err != nil {
		return nil, err
	}
	if s != nil && s.Consent == ticket.Consent {
		for _, p := range phases {
			if s.Phase == p {
				return s, nil
			}
		}
	}
	return nil, ErrNotPending
}

// step changes the row of a ticket.
func (l *Ledger) step(ctx context.Context, ticket Ticket, f func(*tx, *session) error, phases ...phase) error {
	return l.change(ctx, func(t *tx) error {
		s, err := t.fetch(ticket, phases...)
		if err != nil {
			return err
		}
		t.shown = true
		if err := f(t, s); err != nil {
			return err
		}
		return t.save(s)
	})
}

// Delivering commits the intent to deliver, before anything is sent. The
// idempotency key comes from what Consume has committed: session and suspension.
// ErrNotPending when the consent is void meanwhile.
func (l *Ledger) Delivering(ctx context.Context, ticket Ticket) error {
	return l.step(ctx, ticket, func(_ *tx, s *session) error {
		s.Phase = phaseResuming
		return nil
	}, phaseQueued)
}

// Delivered records that the server has accepted it. ErrNotPending when that is decided already.
func (l *Ledger) Delivered(ctx context.Context, ticket Ticket, how string) error {
	err := l.step(ctx, ticket, func(t *tx, s *session) error {
		inc, err := t.running()
		if err != nil {
			return err
		}
		since := s.Consumed + 1
		if err := t.delivered(s, how); err != nil || inc == nil {
			return err
		}
		// It is at work until an event says otherwise: the server may die before the first one.
		s.Claimed, s.Ours, s.Incarnation = since, true, inc.ID
		return nil
	}, phaseResuming)
	faultpoint.At(faultpoint.ConsentDelivered)
	return err
}

// ResumedFrom gives the suspension (Unix ms) that the session's execution continues
// by our resume; 0 when it isn't at work, or not by us. Ask before its end is applied.
func (l *Ledger) ResumedFrom(ctx context.Context, id string) (suspended int64, err error) {
	err = l.read(ctx, func(t *tx) error {
		s, err := find(t, id)
		if err == nil && s != nil && (s.live() && s.Ours || s.Phase == phaseResuming) {
			suspended = s.LastSuspended
		}
		return err
	})
	return suspended, err
}

// delivered ends the suspension by our resume; what was consumed with it is covered.
func (t *tx) delivered(s *session, how string) error {
	t.note(s, whatDelivered, how)
	covered, err := t.covered(s)
	if err != nil {
		return err
	}
	for _, c := range covered {
		if err := t.settle(c, "covered by its parent "+s.ID); err != nil {
			return err
		}
	}
	if err := t.save(covered...); err != nil {
		return err
	}
	s.Phase = phaseNone // so that close puts nothing back
	s.Resumes++
	return t.close(s)
}

// covered gives the sessions that were consumed together with s.
func (t *tx) covered(s *session) ([]*session, error) {
	list, err := sessions(t, "WHERE phase = 'covered' AND covered_by = ?", s.ID)
	for i, c := range list {
		if row := t.loaded[c.ID]; row != nil {
			list[i] = row
		}
	}
	return slices.DeleteFunc(list, func(c *session) bool { return c.Phase != phaseCovered || c.CoveredBy != s.ID }), err
}

// Idle records that a session that was delivered is not at work: it ended at once.
func (l *Ledger) Idle(ctx context.Context, ticket Ticket) error {
	return l.step(ctx, ticket, func(_ *tx, s *session) error {
		if s.live() && s.Claimed == ticket.Suspended+1 {
			s.unclaim()
		}
		return nil
	}, phaseNone)
}

// PutBack makes the suspension pending again, the very same one: surely nothing
// was executed. mark is the session's mark now, "" when it isn't known.
func (l *Ledger) PutBack(ctx context.Context, ticket Ticket, reason, mark string) error {
	err := l.step(ctx, ticket, func(t *tx, s *session) error {
		if mark != "" {
			s.Mark = mark
		}
		return t.putBack(s, reason)
	}, phaseQueued, phaseResuming)
	faultpoint.At(faultpoint.ConsentPutBack)
	return err
}

func (t *tx) putBack(s *session, reason string) error {
	reason = PlainText(reason, 300)
	t.note(s, whatRefused, reason)
	if err := t.uncover(s, reason); err != nil {
		return err
	}
	s.Suspended, s.Consumed, s.Phase, s.Reason = s.Consumed, 0, phaseNone, reason
	return nil
}

// uncover makes pending again what was consumed together with s.
func (t *tx) uncover(s *session, reason string) error {
	covered, err := t.covered(s)
	if err != nil {
		return err
	}
	for _, c := range covered {
		t.note(c, whatRefused, reason)
		c.Suspended, c.Consumed, c.Phase, c.CoveredBy = c.Consumed, 0, phaseNone, ""
	}
	return t.save(covered...)
}

// Unknown makes the suspension wait for a new consent under a new time, so that
// an old click means nothing: whether it was delivered can't be known.
func (l *Ledger) Unknown(ctx context.Context, ticket Ticket, reason, mark string) error {
	err := l.step(ctx, ticket, func(t *tx, s *session) error {
		if mark != "" {
			s.Mark = mark
		}
		return t.unknown(s, reason)
	}, phaseResuming)
	faultpoint.At(faultpoint.ConsentUnknown)
	return err
}

func (t *tx) unknown(s *session, reason string) error {
	reason = PlainText(reason, 300)
	if err := t.uncover(s, reason); err != nil {
		return err
	}
	old := s.Consumed
	s.Suspended = max(t.now, s.LastSuspended+1)
	s.LastSuspended, s.Consumed, s.Phase, s.Reason = s.Suspended, 0, phaseUnknown, reason
	t.note(s, whatUnknown, fmt.Sprintf("was %d: %s", old, reason))
	return nil
}

// Settle ends the pending suspension (id, at) without a consent: its session went
// on or vanished without us. ErrNotPending when it doesn't wait (any more).
func (l *Ledger) Settle(ctx context.Context, id string, at int64, why string) error {
	return l.change(ctx, func(t *tx) error {
		s, err := find(t, id)
		if err != nil {
			return err
		}
		if s == nil || s.Suspended == 0 || s.Suspended != at {
			return ErrNotPending
		}
		if err := t.settle(s, why); err != nil {
			return err
		}
		return t.save(s)
	})
}

// Dismiss is the person's no to the suspension (id, at) and all that waits under
// it; at 0 means the one that is pending now. It gives the number of sessions
// dismissed. A *StaleError says that another one waits. A queued one can be dismissed, one that is being delivered can't:
// that is a *RefusedError.
func (l *Ledger) Dismiss(ctx context.Context, id string, at int64) (int, error) {
	n := 0
	err := l.change(ctx, func(t *tx) error {
		list, err := t.dismissable(id, at)
		if err != nil {
			return err
		}
		for _, s := range list {
			t.note(s, whatDismissed, "")
			s.Phase = phaseNone // so that close puts nothing back
			if err := t.close(s); err != nil {
				return err
			}
		}
		n = len(list)
		return t.save(list...)
	})
	faultpoint.At(faultpoint.DismissDone)
	return n, err
}

func (t *tx) dismissable(id string, at int64) ([]*session, error) {
	s, err := find(t, id)
	if err != nil {
		return nil, err
	}
	switch {
	case s == nil || s.suspension() == 0:
		return nil, ErrNotPending
	case at != 0 && s.suspension() != at:
		return nil, &StaleError{Session: id}
	}
	switch s.Phase {
	case phaseResuming:
		return nil, &RefusedError{Reason: "it is being resumed at this moment; look again when that is decided"}
	case phaseCovered:
		return nil, &RefusedError{Reason: "it goes with its parent session " + s.CoveredBy + "; decide about that one"}
	case phaseQueued:
		covered, err := t.covered(s)
		return append([]*session{s}, covered...), err
	}
	under, err := t.decidable(id, s.Suspended)
	return append([]*session{s}, under...), err
}
