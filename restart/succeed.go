package restart

import (
	"context"
	"fmt"
	"slices"
)

// Found is what is known of a running server that was started without our doing or seeing.
type Found struct {
	Active []string // what it executes
	Asked  int64    // Unix ms, taken before it was asked for that; 0 looks for nothing that the ledger has not heard of
	// Before is the incarnation before it, which the ledger may not have heard of either:
	// its supervisor died when it had just been started. The zero value is none.
	Before Incarnation
}

// Succeed begins inc, a running server that was started without our doing or
// seeing, and ends every incarnation before it whose end we did not see: nobody
// of us was there to park. What such a server has resumed of theirs it executes
// now, or has executed; that is past preventing, and settled. What it has not,
// becomes a suspension like any other, also what began while nobody of us listened.
// Nothing is done to the server's database, for a server runs.
func (l *Ledger) Succeed(ctx context.Context, inc Incarnation, found Found, db Database) error {
	var names []string
	var before []Incarnation
	err := l.read(ctx, func(t *tx) (err error) {
		if names, err = t.openIn(inc.Database, ""); err == nil {
			before, err = t.unseen(inc, found)
		}
		return err
	})
	if err != nil {
		return err
	}
	cut, err := cutOff(ctx, db, before, found)
	if err != nil {
		return fmt.Errorf("cannot look at what an earlier server was doing: %w", err)
	}
	fates, err := l.fates(ctx, db, inc.Database, append(names, cut...))
	if err != nil {
		return fmt.Errorf("cannot look at what an earlier server left: %w", err)
	}
	err = l.change(ctx, func(t *tx) error {
		if err := t.exec("UPDATE incarnation SET ended_at = ? WHERE ended_at IS NULL AND id <> ?", max(inc.StartedAt, 1), inc.ID); err != nil {
			return err
		}
		return t.eachAtWork(slices.Concat(names, found.Active, cut), func(s *session, _ bool) error {
			if s.Incarnation == inc.ID {
				return nil
			}
			if slices.Contains(cut, s.ID) && !s.heardOf(before) {
				return t.unheard(s, fates[s.ID], before[0])
			}
			return t.inherit(s, fates[s.ID], slices.Contains(found.Active, s.ID), inc)
		})
	})
	if err != nil {
		return err
	}
	return l.BeginIncarnation(ctx, inc)
}

// unseen gives the incarnations before inc whose end we did not see, the newest first.
func (t *tx) unseen(inc Incarnation, found Found) ([]Incarnation, error) {
	list, err := t.incarnations("WHERE ended_at IS NULL AND id <> ? AND database = ? ORDER BY started_at DESC", inc.ID, inc.Database)
	if err != nil || found.Before.ID == "" || found.Before.Database != inc.Database {
		return list, err
	}
	known, err := t.incarnations("WHERE id = ?", found.Before.ID)
	if err == nil && len(known) == 0 {
		list = append([]Incarnation{found.Before}, list...)
	}
	return list, err
}

// cutOff gives what began in one of these incarnations, has no end, and isn't at work:
// nobody may have listened when it began. What began since the newest server was asked
// is its own.
func cutOff(ctx context.Context, db Database, before []Incarnation, found Found) ([]string, error) {
	if len(before) == 0 || found.Asked == 0 {
		return nil, nil
	}
	cut, err := db.InFlight(ctx, before[len(before)-1].StartedAt)
	if err != nil || len(cut) == 0 {
		return nil, err
	}
	since, err := db.InFlight(ctx, found.Asked)
	return slices.DeleteFunc(cut, func(id string) bool {
		return slices.Contains(since, id) || slices.Contains(found.Active, id)
	}), err
}

// heardOf says that the ledger has the session's work in one of these incarnations.
func (s *session) heardOf(before []Incarnation) bool {
	if !s.live() && s.Suspended == 0 && !s.flying() && !s.Confirmed {
		return false
	}
	return s.flying() || slices.ContainsFunc(before, func(i Incarnation) bool { return i.ID == s.Incarnation })
}

// unheard suspends a session that began in an incarnation whose end we did not see,
// while nobody of us listened.
func (t *tx) unheard(s *session, fate Fate, before Incarnation) error {
	if fate.over() {
		return nil
	}
	if s.suspension() != 0 {
		if err := t.settle(s, "it went on without us"); err != nil {
			return err
		}
	}
	s.Incarnation, s.Generation, s.Database = before.ID, before.Generation, before.Database
	t.suspend(s, CauseCrash, t.now)
	s.Mark = fate.Mark
	return nil
}

// inherit decides about one session of an incarnation that inc has followed unseen.
func (t *tx) inherit(s *session, fate Fate, active bool, inc Incarnation) error {
	switch {
	case s.Phase == phaseResuming:
		return nil // Recover asks the server
	case s.Phase == phaseQueued:
		return t.putBack(s, "the supervisor ended before it was resumed")
	case active:
		if s.suspension() != 0 {
			if err := t.settle(s, "it went on without us"); err != nil {
				return err
			}
		}
		s.claim(max(t.now, s.Seen+1, inc.StartedAt), inc)
	case s.live() && fate.over():
		s.unclaim()
	case s.live():
		t.suspend(s, CauseCrash, t.now)
		s.Mark = fate.Mark
	case s.Suspended != 0 && fate.over() && !s.Confirmed:
		return t.settle(s, "it ended by itself")
	case s.Suspended != 0 && s.Mark == "":
		s.Mark = fate.Mark
	}
	return nil
}
