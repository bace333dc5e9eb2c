package restart

import (
	"encoding/json"
	"maps"
	"slices"
)

// parking decides, in one transaction, what becomes of each session when its
// server has ended. The server's database decides before our claims do.
type parking struct {
	*tx
	opts    ParkOptions
	watched map[string]bool // incarnations that ended
	fates   map[string]Fate
	rows    map[string]*session // sessions that are touched
	claims  []Claim             // new in the table parked
	jobs    []Job               // new in the table parked
	kept    map[parkedKey]parkedRow
	claimed map[string]bool // sessions with a claim in the sweep
	done    *Parked
}

type parkedKey struct{ kind, key string }

type parkedRow struct {
	claimedAt int64
	raw       string
}

func (p *parking) run(sweep Sweep, inFlight []string, done *Parked) error {
	p.done, p.claimed = done, make(map[string]bool, len(sweep.Claims))
	if err := p.load(sweep, inFlight); err != nil {
		return err
	}
	if err := p.forgetGone(sweep); err != nil {
		return err
	}
	for _, c := range sweep.Claims {
		p.claimed[c.Session] = true
		if err := p.claim(c); err != nil {
			return err
		}
	}
	if err := p.undecided(); err != nil {
		return err
	}
	for _, id := range inFlight {
		if err := p.inFlight(id); err != nil {
			return err
		}
	}
	for _, j := range sweep.Jobs {
		p.job(j)
	}
	return p.write()
}

// load reads every row that may be touched.
func (p *parking) load(sweep Sweep, inFlight []string) error {
	touched := slices.Clone(inFlight)
	for _, c := range sweep.Claims {
		touched = append(touched, c.Session)
	}
	for _, j := range sweep.Jobs {
		touched = append(touched, j.Session, j.Child)
	}
	list, err := sessions(p, "WHERE id IN ("+openIDs+" UNION ALL SELECT value FROM json_each(?))", ids(touched))
	if err != nil {
		return err
	}
	for _, s := range list {
		p.rows[s.ID] = s
	}
	p.loaded = p.rows
	p.kept = map[parkedKey]parkedRow{}
	rows, err := p.QueryContext(p.ctx, "SELECT kind, key, claimed_at, raw FROM parked WHERE cleared_at IS NULL AND database = ?", p.opts.Database)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k parkedKey
		var r parkedRow
		if err := rows.Scan(&k.kind, &k.key, &r.claimedAt, &r.raw); err != nil {
			return err
		}
		p.kept[k] = r
	}
	return rows.Err()
}

// forgetGone marks as cleared what an earlier, broken off Park recorded and what
// isn't in the database (as it was) any more.
func (p *parking) forgetGone(sweep Sweep) error {
	gone := make(map[parkedKey]bool, len(p.kept))
	for k := range p.kept {
		gone[k] = true
	}
	for _, c := range sweep.Claims {
		if k := (parkedKey{"claim", c.Session}); p.kept[k].claimedAt == c.ClaimedAt {
			delete(gone, k)
		}
	}
	for _, j := range sweep.Jobs {
		if k := (parkedKey{"job", j.Key}); p.kept[k].raw == string(j.Raw) {
			delete(gone, k)
		}
	}
	for k := range gone {
		delete(p.kept, k)
		if err := p.exec("UPDATE parked SET cleared_at = ? WHERE cleared_at IS NULL AND database = ? AND kind = ? AND key = ?",
			p.now, p.opts.Database, k.kind, k.key); err != nil {
			return err
		}
	}
	return nil
}

func (p *parking) row(id string) *session {
	s := p.rows[id]
	if s == nil {
		s = &session{ID: id}
		p.rows[id] = s
	}
	return s
}

// claim makes a claim of the database a suspension, unless it is one already.
func (p *parking) claim(c Claim) error {
	if _, same := p.kept[parkedKey{"claim", c.Session}]; same {
		return nil // recorded before, and broken off before it was cleared
	}
	s := p.row(c.Session)
	same := s.Suspended != 0 && (p.watched[s.Incarnation] || s.Claimed == c.ClaimedAt && s.Database == p.opts.Database)
	cause, at := CauseParked, c.ClaimedAt
	if p.watched[s.Incarnation] && s.live() || s.Phase == phaseResuming || len(p.watched) > 0 && p.opts.Since != 0 && c.ClaimedAt >= p.opts.Since {
		cause, at = p.cause(), p.opts.At
	}
	if !same {
		if err := p.replace(s, cause, at); err != nil {
			return err
		}
	}
	s.Claimed, s.Attempts = c.ClaimedAt, c.Attempts
	p.claims = append(p.claims, c)
	return nil
}

func (p *parking) cause() Cause {
	if p.opts.Cause == "" {
		return CauseCrash
	}
	return p.opts.Cause
}

// replace ends what the session had, and suspends it.
func (p *parking) replace(s *session, cause Cause, at int64) error {
	switch {
	case s.Phase == phaseResuming:
		if err := p.delivered(s, "it executed when its server ended"); err != nil {
			return err
		}
	case s.suspension() != 0:
		if err := p.settle(s, "it went on without us"); err != nil {
			return err
		}
	}
	p.suspendNew(s, cause, at)
	return nil
}

func (p *parking) suspendNew(s *session, cause Cause, at int64) {
	if !p.watched[s.Incarnation] {
		s.Incarnation = p.opts.Incarnation
	}
	s.Generation, s.Database = p.opts.Generation, p.opts.Database
	p.suspend(s, cause, at)
	p.done.Suspended++
}

// undecided decides about the sessions that had a claim or a consent, and have no claim in the database.
func (p *parking) undecided() error {
	for _, id := range slices.Sorted(maps.Keys(p.rows)) {
		s := p.rows[id]
		if p.claimed[id] {
			continue
		}
		var err error
		switch {
		case s.Phase == phaseQueued:
			err = p.putBack(s, "the server ended before it was resumed")
		case s.Phase == phaseResuming:
			err = p.resuming(s)
		case s.live():
			p.live(s)
		case s.Suspended != 0 && p.watched[s.Incarnation] && s.Database == p.opts.Database && p.fates[id].over():
			p.done.Settled++
			err = p.settle(s, "it ended by itself")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// over says that the session surely was not at work when its server ended.
func (f Fate) over() bool {
	return f.Outcome == OutcomeEnded || f.Outcome == OutcomeArchived || f.Outcome == OutcomeGone
}

// live decides about a claim that only we know of.
func (p *parking) live(s *session) {
	if s.Database == p.opts.Database && p.fates[s.ID].over() {
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
func (p *parking) resuming(s *session) error {
	fate, known := p.fates[s.ID]
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
func (p *parking) inFlight(id string) error {
	s := p.row(id)
	if p.claimed[id] || s.Suspended != 0 && p.watched[s.Incarnation] {
		return nil
	}
	return p.replace(s, p.cause(), p.opts.At)
}

// job records a background job: its session waits, and the session that a running subagent worked for it, under it.
func (p *parking) job(j Job) {
	if _, same := p.kept[parkedKey{"job", j.Key}]; same {
		return
	}
	p.jobs = append(p.jobs, j)
	if j.Session != "" {
		p.wait(p.row(j.Session))
	}
	if j.Child != "" && j.Child != j.Session && j.Status == "running" {
		child := p.row(j.Child)
		child.Parent = j.Session
		p.wait(child)
	}
}

// wait suspends a session that a job would wake, unless it waits already.
func (p *parking) wait(s *session) {
	if s.Suspended == 0 && !s.flying() {
		cause := CauseParked
		if len(p.watched) > 0 {
			cause = p.cause()
		}
		p.suspendNew(s, cause, p.opts.At)
	}
}

func (p *parking) write() error {
	list := make([]*session, 0, len(p.rows))
	for _, s := range p.rows {
		if s.ID != "" {
			list = append(list, s)
		}
	}
	if err := p.save(list...); err != nil {
		return err
	}
	if err := p.writeClaims(); err != nil {
		return err
	}
	for _, j := range p.jobs {
		if err := p.exec(`INSERT INTO parked (database, kind, key, session, job, child, text, status, raw, time_parked)
			VALUES (?, 'job', ?, ?, ?, ?, ?, ?, ?, ?)`, p.opts.Database, j.Key, j.Session, PlainText(j.Kind, 20), j.Child,
			PlainText(j.Text, 500), PlainText(j.Status, 20), string(j.Raw), p.now); err != nil {
			return err
		}
	}
	return p.exec("UPDATE incarnation SET ended_at = ? WHERE ended_at IS NULL", p.opts.At)
}

func (p *parking) writeClaims() error {
	values := make(map[string][3]any, len(p.claims))
	for _, c := range p.claims {
		p.note(p.rows[c.Session], whatParked, "")
		values[c.Session] = [3]any{c.ClaimedAt, c.Attempts, string(c.Raw)}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return p.exec(`INSERT INTO parked (database, kind, key, session, claimed_at, attempts, raw, time_parked)
		SELECT ?, 'claim', key, key, value ->> 0, value ->> 1, value ->> 2, ? FROM jsonb_each(?)`, p.opts.Database, p.now, string(text))
}
