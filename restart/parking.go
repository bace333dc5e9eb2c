package restart

import (
	"encoding/json"
	"maps"
	"slices"
)

// parking decides what becomes of each session when its server has ended: first
// of those whose claim or job stood in the server's database, which need nothing
// else to be decided (digest), then of the others (end, in ending.go).
type parking struct {
	*tx
	opts    ParkOptions
	watched map[string]bool // incarnations that ended
	// successor is an incarnation that runs by now: what it has of a session is newer.
	successor string
	rows      map[string]*session // sessions that may be touched
	was       map[string]session  // rows as they were loaded
	claims    []Claim             // new in the table parked
	done      *Parked
}

// digest makes suspensions of claims and jobs that stood in the server's database.
func (p *parking) digest(sweep Sweep) error {
	sweep, err := p.fresh(sweep)
	if err != nil {
		return err
	}
	touched := make([]string, 0, len(sweep.Claims)+2*len(sweep.Jobs))
	for _, c := range sweep.Claims {
		touched = append(touched, c.Session)
	}
	for _, j := range sweep.Jobs {
		touched = append(touched, j.Session, j.Child)
	}
	if err := p.load("WHERE id IN (SELECT value FROM json_each(?) UNION ALL SELECT id FROM session WHERE phase <> '')", ids(touched)); err != nil {
		return err
	}
	for _, c := range sweep.Claims {
		if err := p.claim(c); err != nil {
			return err
		}
	}
	for _, j := range sweep.Jobs {
		if err := p.job(j); err != nil {
			return err
		}
	}
	p.claims = sweep.Claims
	return p.write()
}

// fresh leaves out what stands in the table parked already.
func (p *parking) fresh(sweep Sweep) (Sweep, error) {
	claims, jobs := make(map[string][2]any, len(sweep.Claims)), make(map[string][2]any, len(sweep.Jobs))
	for _, c := range sweep.Claims {
		claims[c.Session] = [2]any{c.ClaimedAt, string(c.Raw)}
	}
	for _, j := range sweep.Jobs {
		jobs[j.Key] = [2]any{0, string(j.Raw)}
	}
	oldClaims, err := p.known("claim", claims)
	if err != nil {
		return sweep, err
	}
	oldJobs, err := p.known("job", jobs)
	if err != nil {
		return sweep, err
	}
	sweep.Claims = slices.DeleteFunc(sweep.Claims, func(c Claim) bool { return oldClaims[c.Session] })
	sweep.Jobs = slices.DeleteFunc(sweep.Jobs, func(j Job) bool { return oldJobs[j.Key] })
	return sweep, nil
}

func (p *parking) known(kind string, rows map[string][2]any) (map[string]bool, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return nil, err
	}
	found, err := p.QueryContext(p.ctx, `SELECT p.key FROM jsonb_each(?) AS each CROSS JOIN parked p ON p.key = each.key
		AND p.claimed_at = each.value ->> 0 AND p.raw = each.value ->> 1 WHERE p.kind = ? AND p.database = ?`,
		string(text), kind, p.opts.Database)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	known := map[string]bool{}
	for found.Next() {
		var key string
		if err := found.Scan(&key); err != nil {
			return nil, err
		}
		known[key] = true
	}
	return known, found.Err()
}

// load reads the rows that may be touched.
func (p *parking) load(where string, args ...any) error {
	list, err := sessions(p, where, args...)
	if err != nil {
		return err
	}
	for _, s := range list {
		p.rows[s.ID], p.was[s.ID] = s, *s
	}
	p.loaded = p.rows
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
	s := p.row(c.Session)
	if p.goesOn(s) {
		return nil
	}
	same := s.Suspended != 0 && (p.watched[s.Incarnation] || s.Claimed == c.ClaimedAt && s.Database == p.opts.Database)
	cause, at := CauseParked, c.ClaimedAt
	if p.watched[s.Incarnation] && s.live() || s.Phase == phaseResuming || len(p.watched) > 0 && p.opts.Since != 0 && c.ClaimedAt >= p.opts.Since {
		cause, at = p.cause(), p.opts.At
	}
	ours := p.watched[s.Incarnation] && (s.live() || s.Suspended != 0) || s.Phase == phaseResuming
	if c.Elsewhere && !ours {
		cause, at = CauseParked, c.ClaimedAt
	}
	if !same {
		if err := p.replace(s, cause, at); err != nil {
			return err
		}
	}
	if c.Elsewhere && !ours {
		s.Obstacle = obstacleElsewhere
	}
	s.Claimed, s.Attempts = c.ClaimedAt, c.Attempts
	if c.Parent != "" { // it becomes visible where it belongs
		s.Parent = c.Parent
	}
	p.confirm(s)
	return nil
}

// goesOn says that the session is at work, or was just stopped, in a server that followed the one that ended.
func (p *parking) goesOn(s *session) bool {
	return p.successor != "" && s.Incarnation == p.successor && (s.live() || s.Suspended != 0)
}

// confirm notes that the session waits whatever is found out about the incarnation that ended.
func (p *parking) confirm(s *session) {
	s.Confirmed = true
	if !p.watched[s.Incarnation] {
		s.Incarnation = p.opts.Incarnation
	}
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

// job records a background job: its session waits, and the session that a running subagent worked for it, under it.
func (p *parking) job(j Job) error {
	if j.Session != "" {
		if err := p.wait(p.row(j.Session)); err != nil {
			return err
		}
	}
	if j.Child != "" && j.Child != j.Session && j.Status == "running" {
		child := p.row(j.Child)
		child.Parent = j.Session
		if err := p.wait(child); err != nil {
			return err
		}
	}
	return p.exec(`INSERT INTO parked (database, kind, key, session, job, child, text, status, raw, time_parked)
		VALUES (?, 'job', ?, ?, ?, ?, ?, ?, ?, ?)`, p.opts.Database, j.Key, j.Session, PlainText(j.Kind, 20), j.Child,
		PlainText(j.Text, 500), PlainText(j.Status, 20), string(j.Raw), p.now)
}

// wait suspends a session that a job would wake, unless it waits already. A job
// that wasn't there at the last park is one of the turn that was being resumed.
func (p *parking) wait(s *session) error {
	if head := p.rows[s.CoveredBy]; s.Phase == phaseCovered && head != nil && head.Phase == phaseResuming {
		if err := p.replace(head, p.cause(), p.opts.At); err != nil {
			return err
		}
		p.confirm(head)
	}
	switch {
	case p.goesOn(s):
		return nil
	case s.Phase == phaseResuming:
		if err := p.replace(s, p.cause(), p.opts.At); err != nil {
			return err
		}
	case s.flying():
		return nil // put back when the rest is decided
	case s.Suspended == 0:
		cause := CauseParked
		if len(p.watched) > 0 {
			cause = p.cause()
		}
		p.suspendNew(s, cause, p.opts.At)
	}
	p.confirm(s)
	return nil
}

func (p *parking) write() error {
	if err := p.saveChanged(); err != nil || len(p.claims) == 0 {
		return err
	}
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

func (p *parking) saveChanged() error {
	var list []*session
	for _, id := range slices.Sorted(maps.Keys(p.rows)) {
		if s := p.rows[id]; *s != p.was[id] {
			list = append(list, s)
		}
	}
	return p.save(list...)
}
