package restart

import (
	"context"
	"fmt"
	"slices"
)

// Succeed begins inc, a running server that was started without our doing or
// seeing, and ends every incarnation before it whose end we did not see: nobody
// of us was there to park. What such a server has resumed of theirs it executes
// now, or has executed; that is past preventing, and settled. What it has not,
// becomes a suspension like any other. active is what inc executes, asked of it.
// Nothing is done to the server's database, for a server runs.
func (l *Ledger) Succeed(ctx context.Context, inc Incarnation, active []string, db Database) error {
	var names []string
	err := l.read(ctx, func(t *tx) (err error) {
		names, err = t.openIn(inc.Database, "")
		return err
	})
	if err != nil {
		return err
	}
	fates, err := l.fates(ctx, db, inc.Database, names)
	if err != nil {
		return fmt.Errorf("cannot look at what an earlier server left: %w", err)
	}
	err = l.change(ctx, func(t *tx) error {
		if err := t.exec("UPDATE incarnation SET ended_at = ? WHERE ended_at IS NULL AND id <> ?", max(inc.StartedAt, 1), inc.ID); err != nil {
			return err
		}
		return t.eachAtWork(append(names, active...), func(s *session, _ bool) error {
			if s.Incarnation == inc.ID {
				return nil
			}
			return t.inherit(s, fates[s.ID], slices.Contains(active, s.ID), inc)
		})
	})
	if err != nil {
		return err
	}
	return l.BeginIncarnation(ctx, inc)
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
