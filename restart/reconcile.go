package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// mark stores the marks of suspensions that have none, and settles those whose
// session is archived or gone. No server may have written since they were made.
func (l *Ledger) mark(ctx context.Context, db Database, database string) error {
	return l.compare(ctx, db, database, "AND mark = ''")
}

// Reconcile settles what waits for consent and whose session went on, is gone or
// is archived, by the server's database: at start, after events may have been
// missed, and while no server of ours runs, for another may have gone on with it.
// The suspensions are those of the database that db says it is, by a method Path; else
// of the incarnation that runs or was the last to run.
func (l *Ledger) Reconcile(ctx context.Context, db Database) error {
	database, err := l.pathOf(ctx, db)
	if err != nil {
		return err
	}
	return errors.Join(l.compare(ctx, db, database, ""), l.Describe(ctx, db))
}

func (l *Ledger) pathOf(ctx context.Context, db Database) (path string, err error) {
	if located, ok := db.(interface{ Path() string }); ok {
		return located.Path(), nil
	}
	err = l.read(ctx, func(t *tx) error {
		list, err := t.incarnations("ORDER BY ended_at IS NULL DESC, ended_at DESC LIMIT 1")
		for _, i := range list {
			path = i.Database
		}
		return err
	})
	return path, err
}

// current gives the running incarnation, nil when none.
func (l *Ledger) current(ctx context.Context) (inc *Incarnation, err error) {
	err = l.read(ctx, func(t *tx) error {
		inc, err = t.running()
		return err
	})
	return inc, err
}

// pendingOf finds the suspensions of one database that wait, but those of an incarnation that still runs.
const pendingOf = `WHERE time_suspended IS NOT NULL AND database IN (?, '')
	AND incarnation NOT IN (SELECT id FROM incarnation WHERE ended_at IS NULL) `

// waiting is what a suspension is compared by: reading whole rows of a thousand costs much more.
type waiting struct {
	id        string
	suspended int64
	mark      string
	obstacle  obstacle
	claimed   int64
}

func (t *tx) waiting(where string, args ...any) ([]waiting, error) {
	rows, err := t.QueryContext(t.ctx, "SELECT id, coalesce(time_suspended, 0), mark, obstacle, coalesce(time_claimed, 0) FROM session "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []waiting
	for rows.Next() {
		var w waiting
		if err := rows.Scan(&w.id, &w.suspended, &w.mark, &w.obstacle, &w.claimed); err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, rows.Err()
}

// asked gives the ids of what waits, for a question to the server's database.
func (l *Ledger) asked(ctx context.Context, where string, args ...any) (ids []string, at map[string]int64, err error) {
	at = map[string]int64{}
	err = l.read(ctx, func(t *tx) error {
		list, err := t.waiting(where, args...)
		for _, w := range list {
			ids, at[w.id] = append(ids, w.id), w.suspended
		}
		return err
	})
	return ids, at, err
}

// compare holds suspensions against the database; and narrows which.
func (l *Ledger) compare(ctx context.Context, db Database, database, and string) error {
	names, at, err := l.asked(ctx, pendingOf+and, database)
	if err != nil || len(names) == 0 {
		return err
	}
	fates, err := l.fates(ctx, db, database, names)
	if err != nil {
		return fmt.Errorf("cannot compare with the server's database: %w", err)
	}
	return l.change(ctx, func(t *tx) error {
		list, err := t.waiting(pendingOf+and, database)
		if err != nil {
			return err
		}
		marks, obstacles := map[string]string{}, map[string]string{}
		for _, w := range list {
			fate, known := fates[w.id]
			if !known || at[w.id] != w.suspended {
				continue // it was decided while we asked
			}
			now := fate.obstacle(w.mark)
			if now == obstacleNone && w.obstacle == obstacleElsewhere && fate.Outcome == OutcomeInFlight && runsElsewhere(db, w.claimed) {
				now = obstacleElsewhere
			}
			if now != w.obstacle {
				obstacles[w.id] = string(now)
				t.shown = true
			}
			why := fate.against(w.mark)
			if why == "" && w.obstacle == obstacleElsewhere && fate.Outcome == OutcomeEnded {
				why = endedElsewhere
			}
			if why != "" && now == obstacleNone {
				if err := t.settleOne(w.id, why); err != nil {
					return err
				}
			} else if w.mark == "" && fate.Mark != "" {
				marks[w.id] = fate.Mark
			}
		}
		if err := t.setEach("obstacle = each.value", obstacles); err != nil {
			return err
		}
		return t.setEach("mark = each.value", marks)
	})
}

func (t *tx) settleOne(id, why string) error {
	s, err := find(t, id)
	if err != nil || s == nil {
		return err
	}
	if err := t.settle(s, why); err != nil {
		return err
	}
	return t.save(s)
}

const endedElsewhere = "it ended in another OpenCode server"

// runsElsewhere says that an execution which began at claimed (Unix ms), and which none of
// our servers is known to have begun, may go on in another process that has the
// database open. A database that can tell has a method OpenSince.
func runsElsewhere(db Database, claimed int64) bool {
	d, ok := db.(interface{ OpenSince(ms int64) bool })
	return ok && d.OpenSince(claimed)
}

// Elsewhere says whether something waits that runs in another server, as far as is
// known: that it ended with its process shows in no database.
func (l *Ledger) Elsewhere(ctx context.Context) (some bool, err error) {
	err = l.read(ctx, func(t *tx) error {
		return t.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM session WHERE time_suspended IS NOT NULL AND obstacle = 'elsewhere')").Scan(&some)
	})
	return some, err
}

// against says why the suspension is settled; "" when it stands.
func (f Fate) against(mark string) string {
	switch {
	case f.Outcome == OutcomeGone:
		return "the session was deleted"
	case f.Outcome == OutcomeArchived:
		return "the session was archived"
	case mark != "" && f.Mark != "" && f.Mark != mark:
		return "it went on without us"
	}
	return ""
}

// obstacle tells what keeps a suspension that is not settled from being resumed. An
// execution that is newer than the suspension and that no event of our server
// has told of runs in another one: until it ends there, nothing is decided.
func (f Fate) obstacle(mark string) obstacle {
	switch {
	case f.Outcome == outcomeAbsent:
		return obstacleAbsent
	case f.Outcome == OutcomeInFlight && mark != "" && f.Mark != "" && f.Mark != mark:
		return obstacleElsewhere
	}
	return obstacleNone
}

// setEach updates many rows by one statement; values go by session.
func (t *tx) setEach(set string, values map[string]string) error {
	if len(values) == 0 {
		return nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return t.exec("UPDATE session SET "+set+" FROM json_each(?) AS each WHERE session.id = each.key", string(text))
}

func (l *Ledger) list(ctx context.Context, where string, args ...any) (list []*session, err error) {
	err = l.read(ctx, func(t *tx) error {
		list, err = sessions(t, where, args...)
		return err
	})
	return list, err
}

// Describe fetches descriptions of suspensions that have none of their own. db is the
// database of the incarnation that runs or was parked last.
func (l *Ledger) Describe(ctx context.Context, db Database) error {
	names, _, err := l.asked(ctx, "WHERE id IN ("+waitingIDs+") AND described <> coalesce(time_suspended, consumed)")
	if err != nil || len(names) == 0 {
		return err
	}
	found, err := db.Describe(ctx, names)
	if err != nil {
		return fmt.Errorf("cannot describe the suspended sessions: %w", err)
	}
	descriptions, parents := map[string]string{}, map[string]string{}
	for id, d := range found {
		text, err := json.Marshal(d.plain())
		if err != nil {
			return err
		}
		descriptions[id] = string(text)
		if d.Parent != "" {
			parents[id] = d.Parent
		}
	}
	return l.change(ctx, func(t *tx) error {
		t.shown = len(found) > 0
		if err := t.setEach("description = each.value, described = coalesce(time_suspended, consumed)", descriptions); err != nil {
			return err
		}
		return t.setEach("parent_id = each.value", parents)
	})
}

// plain cleans what a session wrote itself. Its directory is kept as it is: it is used, not only shown.
func (d Description) plain() Description {
	d.Title = PlainText(d.Title, 200)
	d.WaitingFor = PlainText(d.WaitingFor, 20)
	d.Children = nil // the ledger knows who waits under whom
	if d.LastPrompt != nil {
		d.LastPrompt = &Prompt{Text: PlainText(d.LastPrompt.Text, 300), At: d.LastPrompt.At}
	}
	if d.LastTool != nil {
		d.LastTool = &Tool{Name: PlainText(d.LastTool.Name, 60), Input: PlainText(d.LastTool.Input, 300), Status: PlainText(d.LastTool.Status, 20)}
	}
	return d
}

// Recover decides about consents that an earlier supervisor left without an
// outcome, once a server is ready, spawned or adopted, and before a Resumer works
// on the ledger. lookup asks that server by the idempotency key; nil when it
// can't be asked. Nothing is delivered again.
func (l *Ledger) Recover(ctx context.Context, lookup func(context.Context, Delivery) (Arrival, error), db Database) error {
	list, err := l.list(ctx, "WHERE phase IN ('queued', 'resuming')")
	if err != nil {
		return err
	}
	for _, s := range list {
		ticket := Ticket{Delivery: Delivery{Session: s.ID, Suspended: s.Consumed}, Consent: s.Consent, Mark: s.Mark}
		if s.Phase == phaseQueued {
			err = l.PutBack(ctx, ticket, "the supervisor ended before it was resumed", "")
		} else {
			err = l.recover(ctx, ticket, lookup, db)
		}
		if err != nil && !errors.Is(err, ErrNotPending) {
			return fmt.Errorf("cannot recover %s: %w", s.ID, err)
		}
	}
	return nil
}

func (l *Ledger) recover(ctx context.Context, ticket Ticket, lookup func(context.Context, Delivery) (Arrival, error), db Database) error {
	err := l.read(ctx, func(t *tx) error {
		s, err := t.fetch(ticket, phaseResuming)
		if err != nil {
			return err
		}
		return t.fill(&ticket.Delivery, s)
	})
	if err != nil {
		return err
	}
	arrival := ArrivalUnknown
	if lookup != nil {
		// An error is as good as not knowing.
		if a, err := lookup(ctx, ticket.Delivery); err == nil {
			arrival = a
		}
	}
	fates, err := db.Fates(ctx, []string{ticket.Session})
	if err != nil {
		fates = nil // as good as not knowing
	}
	return l.decide(ctx, ticket, arrival, fates[ticket.Session])
}

// decide ends a delivery whose outcome wasn't told, by what can be known of it.
func (l *Ledger) decide(ctx context.Context, ticket Ticket, arrival Arrival, fate Fate) error {
	moved := fate.Mark != "" && ticket.Mark != "" && fate.Mark != ticket.Mark
	switch {
	case arrival == Arrived:
		return l.Delivered(ctx, ticket, "the server has it")
	case arrival == NotArrived && moved:
		return l.step(ctx, ticket, func(t *tx, s *session) error { return t.settle(s, "it went on without us") }, phaseResuming)
	case arrival == NotArrived:
		return l.PutBack(ctx, ticket, "it did not reach the server", "")
	case moved:
		return l.Delivered(ctx, ticket, "the server's database shows it")
	}
	return l.Unknown(ctx, ticket, "the connection broke while it was being resumed; it may have been continued", "")
}
