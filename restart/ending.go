package restart

import (
	"maps"
	"slices"
)

// end decides about the sessions whose claim did not stand in the server's
// database: those that only we believe to be at work, those that were being
// resumed, and those that were at work without our seeing it.
func (p *parking) end(inFlight []string, fates map[string]Fate) error {
	err := p.load("WHERE id IN (SELECT id FROM session WHERE id IN ("+openIDs+")"+unconfirmed+" UNION ALL SELECT value FROM json_each(?))", ids(inFlight))
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.rows)) {
		fate, known := fates[id]
		if err := p.undecided(p.rows[id], fate, known); err != nil {
			return err
		}
	}
	for _, id := range inFlight {
		if err := p.inFlight(id, fates[id]); err != nil {
			return err
		}
	}
	if err := p.saveChanged(); err != nil {
		return err
	}
	return p.exec("UPDATE incarnation SET ended_at = ? WHERE ended_at IS NULL", p.opts.At)
}

// undecided decides about a session that had a claim or a consent, and had no claim in the database.
func (p *parking) undecided(s *session, fate Fate, known bool) error {
	switch {
	case s.Phase == phaseQueued:
		return p.putBack(s, serverEnded)
	case s.Phase == phaseResuming:
		return p.resuming(s, fate, known)
	case s.live():
		p.live(s, fate)
	case s.Suspended != 0 && !s.Confirmed && p.watched[s.Incarnation] && s.Database == p.opts.Database && fate.over():
		p.done.Settled++
		return p.settle(s, "it ended by itself")
	}
	return nil
}

// over says that the session surely was not at work when its server ended.
func (f Fate) over() bool {
	return f.Outcome == OutcomeEnded || f.Outcome == OutcomeArchived || f.Outcome == OutcomeGone
}

// live decides about a claim that only we know of.
func (p *parking) live(s *session, fate Fate) {
	if s.Database == p.opts.Database && fate.over() {
		s.unclaim()
		return
	}
	database, generation := s.Database, s.Generation
	p.suspendNew(s, p.cause(), p.opts.At)
	if database != "" { // of another database than the one that is parked: that one it stays
		s.Database, s.Generation = database, generation
	}
}

// resuming decides about a delivery that was under way when the server ended.
func (p *parking) resuming(s *session, fate Fate, known bool) error {
	switch {
	case known && (fate.Outcome == OutcomeGone || fate.Outcome == OutcomeArchived):
		return p.settle(s, "the session is gone or archived")
	case !known || s.Mark == "" || fate.Mark == "":
		return p.unknown(s, "the server ended while it was being resumed")
	case fate.Mark == s.Mark:
		return p.putBack(s, "the server ended before it was resumed")
	}
	if err := p.delivered(s, "the server's database shows it"); err != nil {
		return err
	}
	if !fate.over() {
		p.suspendNew(s, p.cause(), p.opts.At)
	}
	return nil
}

// inFlight suspends a session whose execution started in the watched incarnation without our seeing it.
func (p *parking) inFlight(id string, fate Fate) error {
	s := p.row(id)
	if p.watched[s.Incarnation] && (s.Suspended != 0 || s.Confirmed) {
		return nil // that is decided, and perhaps dismissed already
	}
	if s.Mark != "" && fate.Mark == s.Mark {
		return nil // as is this: the clock was set back since, so that an old execution looks new
	}
	return p.replace(s, p.cause(), p.opts.At)
}
