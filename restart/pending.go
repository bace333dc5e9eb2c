package restart

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// Suspension is a session that waits for consent, or whose consent is being carried out.
type Suspension struct {
	ID          string `json:"id"`
	SuspendedAt int64  `json:"suspendedAt"` // Unix ms
	Cause       Cause  `json:"cause"`
	State       State  `json:"state"`
	Reason      string `json:"reason"`
	Description        // Children are the sessions that wait under it; text is plain but for Directory
	Jobs        []Job  `json:"jobs"` // background jobs that were lost, its own and its children's
	Resumes     int    `json:"resumes"`
	ClaimedAt   int64  `json:"claimedAt,omitempty"` // when its execution had started, by the server's clock (Unix ms)
	Attempts    int    `json:"attempts,omitempty"`  // parked claim: the server's own count
	// Announced says that it was written down for an end of its server that hasn't come:
	// that still runs, and the session at work in it.
	Announced bool `json:"announced,omitempty"`
}

// JournalEntry is one line of the journal.
type JournalEntry struct {
	Time        int64 // Unix ms
	Session     string
	SuspendedAt int64 // the suspension it is about
	What        string
	Detail      string
}

// Counts is how many sessions are in which state.
type Counts struct {
	Claims  int // at work, as far as events told
	Pending int // heads that wait for consent, those of unknown outcome included
	Flying  int // queued or resuming
}

// AmbiguousError says that a beginning of an id fits several sessions.
type AmbiguousError struct {
	Prefix     string
	Candidates []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q fits several sessions: %s; give more of the id", e.Prefix, strings.Join(e.Candidates, ", "))
}

// family is every session that waits, and who waits under whom.
type family struct {
	waits  map[string]*session
	parent map[string]string
}

// waitingIDs finds the sessions that wait or whose consent is being carried out, by the two indexes.
const waitingIDs = `SELECT id FROM session WHERE time_suspended IS NOT NULL UNION ALL SELECT id FROM session WHERE phase <> ''`

func loadFamily(q querier) (family, error) {
	f := family{waits: map[string]*session{}, parent: map[string]string{}}
	list, err := sessions(q, "WHERE id IN ("+waitingIDs+")")
	if err != nil {
		return f, err
	}
	for _, s := range list {
		f.waits[s.ID] = s
	}
	rows, err := q.Query(`WITH RECURSIVE up(id, parent) AS (
			SELECT id, parent_id FROM session WHERE id IN (` + waitingIDs + `) AND parent_id <> ''
			UNION SELECT s.id, s.parent_id FROM session s JOIN up ON s.id = up.parent WHERE s.parent_id <> '')
		SELECT id, parent FROM up`)
	if err != nil {
		return f, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent string
		if err := rows.Scan(&id, &parent); err != nil {
			return f, err
		}
		f.parent[id] = parent
	}
	return f, rows.Err()
}

// head gives the root-most suspended ancestor of a session that waits, or itself.
func (f family) head(id string) string {
	if s := f.waits[id]; s == nil || s.Phase == phaseCovered || s.Suspended == 0 {
		if s != nil && s.CoveredBy != "" {
			return s.CoveredBy
		}
		return id
	}
	head, seen := id, map[string]bool{id: true}
	up := f.parent[id]
	for ; up != "" && !seen[up]; up = f.parent[up] {
		seen[up] = true
		if s := f.waits[up]; s != nil && s.Suspended != 0 {
			head = up
		}
	}
	if up != "" {
		return cmp.Or(f.headOfCycle(up), head)
	}
	return head
}

// headOfCycle gives the head where sessions, or rows of jobs, name each other as
// child: of those in the cycle that wait, the first by id, "" if none of them does.
func (f family) headOfCycle(member string) string {
	head := ""
	for at, first := member, true; first || at != member; at, first = f.parent[at], false {
		if s := f.waits[at]; s != nil && s.Suspended != 0 && (head == "" || at < head) {
			head = at
		}
	}
	return head
}

// under gives what waits under head, by id.
func (f family) under(head string) []*session {
	var list []*session
	for id, s := range f.waits {
		if id != head && f.head(id) == head {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Pending lists suspensions, oldest first: those that wait, and those whose
// consent is being carried out. Subagents stand under the session they wait for.
func (l *Ledger) Pending(ctx context.Context) ([]Suspension, error) {
	if err := l.digestFirst(ctx); err != nil {
		return nil, err
	}
	var list []Suspension
	err := l.read(ctx, func(t *tx) error {
		f, err := loadFamily(t)
		if err != nil {
			return err
		}
		inc, err := t.running()
		if err != nil {
			return err
		}
		jobs, err := jobsBySession(t)
		if err != nil {
			return err
		}
		under := map[string][]*session{}
		for id, s := range f.waits {
			head := f.head(id)
			under[head] = append(under[head], s)
		}
		for head, members := range under {
			if s := f.waits[head]; s != nil {
				list = append(list, show(s, members, jobs, inc))
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Suspension) int {
		// Those of one stop share their time: who was at work longest comes first, who was not (0) last.
		return cmp.Or(cmp.Compare(a.SuspendedAt, b.SuspendedAt), cmp.Compare(uint64(a.ClaimedAt)-1, uint64(b.ClaimedAt)-1), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

// show makes what is shown of a head; members are itself and what waits under it.
func show(s *session, members []*session, jobs map[string][]Job, inc *Incarnation) Suspension {
	v := Suspension{ID: s.ID, SuspendedAt: s.suspension(), Cause: s.Cause, State: s.state(inc), Reason: s.reason(inc),
		Description: s.description(), Jobs: []Job{}, Resumes: s.Resumes, ClaimedAt: s.Claimed, Attempts: s.Attempts, Announced: s.ending(inc)}
	v.Children = []string{}
	v.Jobs = append(v.Jobs, jobs[s.ID]...)
	slices.SortFunc(members, func(a, b *session) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range members {
		if m.ID != s.ID {
			v.Children = append(v.Children, m.ID)
			v.Jobs = append(v.Jobs, jobs[m.ID]...)
		}
	}
	return v
}

// read runs f in one transaction, so that what it reads belongs together.
func (l *Ledger) read(ctx context.Context, f func(*tx) error) error {
	sqlTx, err := l.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return l.located(err)
	}
	defer sqlTx.Rollback() //nolint:errcheck // it has only read
	return l.located(f(&tx{Tx: sqlTx, ctx: ctx}))
}

// openJobs gives the parked jobs that their session has not been told of.
func openJobs(q querier, where string, args ...any) ([]Job, error) {
	rows, err := q.Query(`SELECT key, job, session, child, text, status, raw FROM parked
		WHERE kind = 'job' AND done_at IS NULL AND (`+where+`) ORDER BY seq`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Job
	for rows.Next() {
		var j Job
		var raw string
		if err := rows.Scan(&j.Key, &j.Kind, &j.Session, &j.Child, &j.Text, &j.Status, &raw); err != nil {
			return nil, err
		}
		j.Raw = []byte(raw)
		list = append(list, j)
	}
	return list, rows.Err()
}

func jobsBySession(q querier) (map[string][]Job, error) {
	list, err := openJobs(q, "session <> ''")
	by := map[string][]Job{}
	for _, j := range list {
		by[j.Session] = append(by[j.Session], j)
	}
	return by, err
}

// Show tells all of a session; pending is false when nothing of it waits (any
// more): the journal says why. ErrNotPending when the ledger doesn't know it.
func (l *Ledger) Show(ctx context.Context, id string) (s Suspension, pending bool, journal []JournalEntry, err error) {
	if err := l.digestFirst(ctx); err != nil {
		return s, false, nil, err
	}
	err = l.read(ctx, func(t *tx) error {
		row, err := find(t, id)
		if err != nil {
			return err
		}
		if row == nil {
			return ErrNotPending
		}
		if journal, err = t.journal(id); err != nil {
			return err
		}
		f, err := loadFamily(t)
		if err != nil {
			return err
		}
		inc, err := t.running()
		if err != nil {
			return err
		}
		jobs, err := jobsBySession(t)
		if err != nil {
			return err
		}
		s = show(row, f.under(id), jobs, inc)
		pending = row.suspension() != 0
		if !pending {
			s.SuspendedAt, s.ClaimedAt = row.LastSuspended, row.LastClaimed
		}
		return nil
	})
	return s, pending, journal, err
}

func (t *tx) journal(id string) ([]JournalEntry, error) {
	rows, err := t.QueryContext(t.ctx, "SELECT time, session, time_suspended, what, detail FROM journal WHERE session = ? ORDER BY seq", id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []JournalEntry
	for rows.Next() {
		var e JournalEntry
		if err := rows.Scan(&e.Time, &e.Session, &e.SuspendedAt, &e.What, &e.Detail); err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, rows.Err()
}

// Resolve gives the session that prefix names: an id, or an unambiguous beginning
// of one. Sessions that wait come before others. ErrNotPending when there is
// none, *AmbiguousError when there are several.
func (l *Ledger) Resolve(ctx context.Context, prefix string) (string, error) {
	if err := l.digestFirst(ctx); err != nil {
		return "", err
	}
	var waiting, others []string
	err := l.read(ctx, func(t *tx) error {
		// substr and not LIKE or GLOB: no character of the prefix means anything.
		rows, err := t.QueryContext(ctx, `SELECT id, time_suspended IS NOT NULL OR phase <> '' FROM session
			WHERE substr(id, 1, length(?1)) = ?1 AND last_suspended > 0 ORDER BY id <> ?1, id`, prefix)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			var waits bool
			if err := rows.Scan(&id, &waits); err != nil {
				return err
			}
			if id == prefix {
				waiting, others = []string{id}, nil
				return nil
			}
			if waits {
				waiting = append(waiting, id)
			} else {
				others = append(others, id)
			}
		}
		return rows.Err()
	})
	if err != nil {
		return "", err
	}
	fits := waiting
	if len(fits) == 0 {
		fits = others
	}
	switch {
	case prefix == "" || len(fits) == 0:
		return "", ErrNotPending
	case len(fits) > 1:
		return "", &AmbiguousError{Prefix: prefix, Candidates: fits}
	}
	return fits[0], nil
}

// Claims gives the sessions that are at work, as far as events told.
func (l *Ledger) Claims(ctx context.Context) ([]string, error) {
	return l.live(ctx, "")
}

// Since gives, by session, when the execution of each that is at work had started
// (Unix ms, by the server's clock where it tells).
func (l *Ledger) Since(ctx context.Context) (map[string]int64, error) {
	var since map[string]int64
	err := l.read(ctx, func(t *tx) (err error) {
		since, err = t.times("SELECT id, time_claimed FROM session WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = ''")
		return err
	})
	return since, err
}

// live gives the sessions with a live claim; and narrows them.
func (l *Ledger) live(ctx context.Context, and string) ([]string, error) {
	var list []string
	err := l.read(ctx, func(t *tx) error {
		live, err := sessions(t, "WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = '' "+and+" ORDER BY id")
		for _, s := range live {
			list = append(list, s.ID)
		}
		return err
	})
	return list, err
}

// Counts counts sessions by state.
func (l *Ledger) Counts(ctx context.Context) (Counts, error) {
	claims, err := l.Claims(ctx)
	if err != nil {
		return Counts{}, err
	}
	list, err := l.Pending(ctx)
	c := Counts{Claims: len(claims)}
	for _, s := range list {
		if s.State == StateQueued || s.State == StateResuming {
			c.Flying++
		} else {
			c.Pending++
		}
	}
	return c, err
}

// Shown journals, once a suspension, that a person was shown it.
func (l *Ledger) Shown(ctx context.Context, list []string) error {
	return l.change(ctx, func(t *tx) error {
		rows, err := sessions(t, "WHERE time_suspended IS NOT NULL AND shown <> time_suspended AND id IN (SELECT value FROM json_each(?))", ids(list))
		if err != nil {
			return err
		}
		for _, s := range rows {
			s.Shown = s.Suspended
			t.note(s, whatShown, "")
		}
		err = t.save(rows...)
		t.shown = false // nothing of it is in a menu
		return err
	})
}
