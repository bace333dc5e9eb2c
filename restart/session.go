package restart

import (
	"database/sql"
	"encoding/json"
)

// phase is how far a consent has come.
type phase string

const (
	phaseNone     phase = ""
	phaseQueued   phase = "queued"
	phaseResuming phase = "resuming"
	phaseCovered  phase = "covered" // consumed together with the session it waits under
	phaseUnknown  phase = "unknown" // suspended again, for the outcome can't be known
)

// obstacle is why a suspension that stands can't be resumed, as the server's database last showed.
type obstacle string

const (
	obstacleNone      obstacle = ""
	obstacleAbsent    obstacle = "absent"    // its session isn't there, and perhaps it is another database
	obstacleElsewhere obstacle = "elsewhere" // it executes, and not in our server
)

// session is a row of the table session. Times are Unix ms, 0 is none.
type session struct {
	ID, Parent, Generation, Database, Incarnation string
	Claimed                                       int64
	Attempts                                      int
	Seen, Suspended, LastSuspended                int64
	Cause                                         Cause
	Mark                                          string
	Phase                                         phase
	Consumed, Consent                             int64
	CoveredBy, Reason                             string
	Resumes                                       int
	Ours                                          bool
	Waiting                                       string
	Shown                                         int64
	Confirmed                                     bool
	LastClaimed, Described                        int64
	Obstacle                                      obstacle
	Description                                   sql.NullString // written by Describe only
}

const sessionColumns = `id, parent_id, generation, database, incarnation, coalesce(time_claimed, 0), attempts, time_seen,
	coalesce(time_suspended, 0), last_suspended, cause, mark, phase, consumed, consent, covered_by, reason, resumes, ours,
	waiting, shown, confirmed, last_claimed, described, obstacle, description`

// live says that the session is at work, as far as events told.
func (s *session) live() bool { return s.Claimed != 0 && s.Suspended == 0 && s.Phase == phaseNone }

// ending says that it was suspended for the end of inc, the running incarnation, and
// that it isn't sure yet that it was at work to that end.
func (s *session) ending(inc *Incarnation) bool {
	return inc != nil && s.Suspended != 0 && s.Incarnation == inc.ID && !s.Confirmed
}

// flying says that a consent has consumed its suspension and its outcome is not known yet.
func (s *session) flying() bool {
	return s.Phase == phaseQueued || s.Phase == phaseResuming || s.Phase == phaseCovered
}

// suspension is the time that names its suspension, pending or consumed; 0 is none.
func (s *session) suspension() int64 {
	if s.Suspended != 0 {
		return s.Suspended
	}
	return s.Consumed
}

// state tells what can be done about it; inc is the running incarnation or nil.
func (s *session) state(inc *Incarnation) State {
	switch s.Phase {
	case phaseQueued, phaseCovered:
		return StateQueued
	case phaseResuming:
		return StateResuming
	case phaseUnknown:
		return StateUnknown
	}
	switch {
	case s.ending(inc) || s.Obstacle == obstacleAbsent:
		return StateBlocked
	case s.Obstacle == obstacleElsewhere:
		return StateElsewhere
	}
	return StatePending
}

// reason tells why it can't be resumed now, or why it could not be at last.
func (s *session) reason(inc *Incarnation) string {
	switch state := s.state(inc); {
	case state == StateElsewhere:
		return elsewhere
	case state == StateBlocked && s.ending(inc):
		return stopping
	case state == StateBlocked:
		return "its session is not in the server's database " + PlainText(s.Database, 200)
	}
	return s.Reason
}

// description gives what was stored by Describe, with what was known before.
func (s *session) description() Description {
	var d Description
	if s.Description.Valid {
		// What we wrote ourselves; a damaged text only costs the description.
		_ = json.Unmarshal([]byte(s.Description.String), &d)
	}
	if d.WaitingFor == "" {
		d.WaitingFor = s.Waiting
	}
	if d.Parent == "" {
		d.Parent = s.Parent
	}
	return d
}

type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
}

// sessions reads rows; where continues the statement after FROM session.
func sessions(q querier, where string, args ...any) ([]*session, error) {
	rows, err := q.Query("SELECT "+sessionColumns+" FROM session "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []*session
	for rows.Next() {
		s := new(session)
		if err := rows.Scan(&s.ID, &s.Parent, &s.Generation, &s.Database, &s.Incarnation, &s.Claimed, &s.Attempts, &s.Seen,
			&s.Suspended, &s.LastSuspended, &s.Cause, &s.Mark, &s.Phase, &s.Consumed, &s.Consent, &s.CoveredBy, &s.Reason,
			&s.Resumes, &s.Ours, &s.Waiting, &s.Shown, &s.Confirmed, &s.LastClaimed, &s.Described, &s.Obstacle, &s.Description); err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, rows.Err()
}

// find gives the session's row, nil when it has none.
func find(q querier, id string) (*session, error) {
	list, err := sessions(q, "WHERE id = ?", id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// save writes the rows, new and old ones, all but their descriptions. Rows that
// differ only in what is theirs alone go by one statement: a thousand claims are
// parked within milliseconds.
func (t *tx) save(list ...*session) error {
	groups := map[session]map[string][8]any{}
	for _, s := range list {
		alike := *s
		alike.ID, alike.Mark, alike.Description = "", "", sql.NullString{}
		alike.Claimed, alike.Suspended, alike.LastSuspended, alike.Seen, alike.Shown, alike.LastClaimed, alike.Described = 0, 0, 0, 0, 0, 0, 0
		if groups[alike] == nil {
			groups[alike] = map[string][8]any{}
		}
		groups[alike][s.ID] = [8]any{s.Claimed, s.Suspended, s.LastSuspended, s.Seen, s.Shown, s.LastClaimed, s.Described, s.Mark}
	}
	for s, own := range groups {
		text, err := json.Marshal(own)
		if err != nil {
			return err
		}
		if err := t.exec(saveGroup, s.Parent, s.Generation, s.Database, s.Incarnation, s.Attempts, s.Cause, s.Phase, s.Consumed,
			s.Consent, s.CoveredBy, s.Reason, s.Resumes, s.Ours, s.Waiting, s.Confirmed, s.Obstacle, t.now, string(text)); err != nil {
			return err
		}
	}
	return nil
}

const saveGroup = `INSERT INTO session (id, time_claimed, time_suspended, last_suspended, time_seen, shown, last_claimed, described, mark,
		parent_id, generation, database, incarnation, attempts, cause, phase, consumed, consent, covered_by, reason, resumes,
		ours, waiting, confirmed, obstacle, time_known)
	SELECT key, nullif(value ->> 0, 0), nullif(value ->> 1, 0), value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7,
		?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
	FROM jsonb_each(?) WHERE true
	ON CONFLICT (id) DO UPDATE SET time_claimed = excluded.time_claimed, time_suspended = excluded.time_suspended, last_suspended =
		excluded.last_suspended, time_seen = excluded.time_seen, shown = excluded.shown, last_claimed = excluded.last_claimed,
		described = excluded.described, mark = excluded.mark, parent_id = excluded.parent_id, generation =
		excluded.generation, database = excluded.database, incarnation = excluded.incarnation, attempts = excluded.attempts,
		cause = excluded.cause, phase = excluded.phase, consumed = excluded.consumed, consent =
		excluded.consent, covered_by = excluded.covered_by, reason = excluded.reason, resumes = excluded.resumes, ours =
		excluded.ours, waiting = excluded.waiting, confirmed = excluded.confirmed, obstacle = excluded.obstacle`

// note adds a line to the journal.
func (t *tx) note(s *session, what, detail string) {
	t.lines = append(t.lines, JournalEntry{Time: t.now, Session: s.ID, SuspendedAt: s.suspension(), What: what, Detail: detail})
	t.shown = true
}

// writeJournal adds the lines in their order, alike ones of different sessions by one statement.
func (t *tx) writeJournal() error {
	for rest := t.lines; len(rest) > 0; {
		first := rest[0]
		times := map[string]int64{}
		for len(rest) > 0 && rest[0].What == first.What && rest[0].Detail == first.Detail {
			if _, twice := times[rest[0].Session]; twice {
				break
			}
			times[rest[0].Session] = rest[0].SuspendedAt
			rest = rest[1:]
		}
		text, err := json.Marshal(times)
		if err != nil {
			return err
		}
		if err := t.exec(`INSERT INTO journal (time, session, time_suspended, what, detail)
			SELECT ?, key, value, ?, ? FROM json_each(?)`, t.now, first.What, first.Detail, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// ids gives the parameter for "IN (SELECT value FROM json_each(?))".
func ids(list []string) string {
	text, err := json.Marshal(list)
	if err != nil || list == nil {
		return "[]" // a list of strings always can be written
	}
	return string(text)
}
