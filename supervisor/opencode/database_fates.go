package opencode

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"intermission/restart"
)

// The newest event of one session whose type lies in a range, by the index on
// (aggregate_id, type, seq). The plus keeps SQLite from walking back through all
// of the session's events by the index on (aggregate_id, seq) instead.
//
// A type carries a version ("session.execution.started.1", seen in 2026), hence
// ranges: '/' is the character after '.'.
const (
	newestExecution = `(SELECT e.seq FROM event e WHERE e.aggregate_id = s.id
	   AND e.type >= 'session.execution.' AND e.type < 'session.execution/' ORDER BY +e.seq DESC LIMIT 1)`
	newestStarted = `(SELECT e.seq FROM event e WHERE e.aggregate_id = s.id
	   AND e.type >= 'session.execution.started' AND e.type < 'session.execution.started/' ORDER BY +e.seq DESC LIMIT 1)`
	newestMessage = `(SELECT m.id FROM session_message m WHERE m.session_id = s.id AND m.type = '%s' ORDER BY m.seq DESC LIMIT 1)`
)

// Fates implements restart.Database.
//
// For v2 the mark is the sequence number of the newest execution and the ids of
// the newest messages that were written to the session: none of them moves when
// a turn is torn down. For v1, which records no executions, it is the number of
// messages and the newest one's id: each step of a turn and each prompt adds a
// message, while teardown only writes its mark into the one that is there.
func (d *Database) Fates(ctx context.Context, sessions []string) (map[string]restart.Fate, error) {
	fates := make(map[string]restart.Fate, len(sessions))
	err := d.read(ctx, func(q querier, s shape) error { return fatesOf(ctx, q, s, sessions, fates) })
	if err != nil {
		return nil, err
	}
	return fates, nil
}

func fatesOf(ctx context.Context, q querier, s shape, sessions []string, into map[string]restart.Fate) error {
	for _, id := range sessions {
		into[id] = restart.Fate{Outcome: restart.OutcomeGone}
	}
	switch {
	case s.kind == KindAbsent, len(sessions) == 0:
		return nil
	case s.kind == KindV1:
		return fatesV1(ctx, q, sessions, into)
	default:
		return fatesV2(ctx, q, s, sessions, into)
	}
}

func fatesV2(ctx context.Context, q querier, s shape, sessions []string, into map[string]restart.Fate) error {
	rows, err := q.QueryContext(ctx, fatesQueryV2(s), list(sessions))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, event, reason, user, synthetic string
		var archived, claimed bool
		var started int64
		if err := rows.Scan(&id, &archived, &claimed, &event, &reason, &started, &user, &synthetic); err != nil {
			return err
		}
		outcome := outcomeV2(s.kind, claimed, event, reason)
		if archived {
			outcome = restart.OutcomeArchived
		}
		into[id] = restart.Fate{Outcome: outcome, Mark: fmt.Sprintf("started:%d/user:%s/synthetic:%s", started, user, synthetic)}
	}
	return rows.Err()
}

func fatesQueryV2(s shape) string {
	return fmt.Sprintf(`
		WITH s AS MATERIALIZED (
		  SELECT s.id, s.time_archived IS NOT NULL AS archived, s.%s IS NOT NULL AS claimed
		    FROM (SELECT DISTINCT value AS id FROM json_each(?)) j CROSS JOIN %s s ON s.id = j.id)
		SELECT s.id, s.archived, s.claimed, coalesce(e.type, ''), coalesce(%s ->> '$.reason', ''),
		       coalesce(%s, -1), coalesce(%s, ''), coalesce(%s, '')
		  FROM s LEFT JOIN event e ON e.aggregate_id = s.id AND e.seq = %s`,
		s.claim, s.sessions, parsed("e.data"), newestStarted, fmt.Sprintf(newestMessage, "user"), fmt.Sprintf(newestMessage, "synthetic"),
		newestExecution)
}

// outcomeV2 judges by the newest event of execution, and by the claim where
// that says more.
func outcomeV2(kind string, claimed bool, event, reason string) restart.Outcome {
	if kind == KindEarly && claimed {
		return restart.OutcomeSuspended // only a graceful stop writes it
	}
	switch executionOf(event) {
	case "started":
		return restart.OutcomeInFlight
	case "interrupted":
		switch reason {
		case "shutdown":
			return restart.OutcomeSuspended
		case "user", "superseded":
			return restart.OutcomeEnded
		}
		return restart.OutcomeUnknown
	case "succeeded", "failed":
		return restart.OutcomeEnded
	}
	if claimed {
		return restart.OutcomeInFlight
	}
	return restart.OutcomeUnknown
}

func fatesV1(ctx context.Context, q querier, sessions []string, into map[string]restart.Fate) error {
	rows, err := q.QueryContext(ctx, fatesQueryV1(), list(sessions))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, newest, role string
		var archived bool
		var count int
		var completed sql.NullFloat64
		var failure, finish sql.NullString
		if err := rows.Scan(&id, &archived, &count, &newest, &role, &completed, &failure, &finish); err != nil {
			return err
		}
		outcome := outcomeV1(role, completed.Valid, failure.String, finish.String)
		if archived {
			outcome = restart.OutcomeArchived
		}
		into[id] = restart.Fate{Outcome: outcome, Mark: fmt.Sprintf("messages:%d/newest:%s", count, newest)}
	}
	return rows.Err()
}

func fatesQueryV1() string {
	return fmt.Sprintf(`
		WITH s AS MATERIALIZED (
		  SELECT s.id, s.time_archived IS NOT NULL AS archived
		    FROM (SELECT DISTINCT value AS id FROM json_each(?)) j CROSS JOIN session s ON s.id = j.id)
		SELECT s.id, s.archived, (SELECT count(*) FROM message m WHERE m.session_id = s.id), coalesce(m.id, ''),
		       coalesce(%[1]s ->> '$.role', ''), %[1]s ->> '$.time.completed', %[1]s ->> '$.error.name', %[1]s ->> '$.finish'
		  FROM s LEFT JOIN message m ON m.id = (
		       SELECT n.id FROM message n WHERE n.session_id = s.id ORDER BY n.time_created DESC, n.id DESC LIMIT 1)`,
		parsed("m.data"))
}

// outcomeV1 judges by the last message. An abort by the user leaves the same
// mark as a disposal: only the ledger tells them apart. Of a prompt without an
// answer it can't be told whether one was wanted.
func outcomeV1(role string, completed bool, failure, finish string) restart.Outcome {
	switch {
	case role == "":
		return restart.OutcomeUnknown
	case role == "user":
		return restart.OutcomeInFlight
	case failure == "MessageAbortedError":
		return restart.OutcomeSuspended
	case failure != "":
		return restart.OutcomeEnded
	case !completed, finish == "tool-calls":
		return restart.OutcomeInFlight
	case finish == "":
		return restart.OutcomeSuspended
	}
	return restart.OutcomeEnded
}

// InFlight implements restart.Database. Sessions that the server's own mark
// calls suspended are among them. Each session costs a search of the index on
// events: neither events nor sessions have an index on time.
func (d *Database) InFlight(ctx context.Context, since int64) ([]string, error) {
	var inFlight []string
	err := d.read(ctx, func(q querier, s shape) error {
		if s.claim == "" {
			return nil
		}
		started, err := texts(ctx, q, startedSince(s), since)
		if err != nil {
			return err
		}
		inFlight, err = atWork(ctx, q, s, started)
		return err
	})
	if err != nil {
		return nil, err
	}
	return inFlight, nil
}

// Began gives when the newest execution of a session started (Unix ms); 0 when it has
// none, and for v1, which records no executions.
func (d *Database) Began(ctx context.Context, session string) (int64, error) {
	var at int64
	err := d.read(ctx, func(q querier, s shape) error {
		if s.claim == "" {
			return nil
		}
		err := q.QueryRowContext(ctx, began(s), session).Scan(&at)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return at, err
}

func began(s shape) string {
	return fmt.Sprintf(`SELECT e.created FROM %s s CROSS JOIN event e ON e.aggregate_id = s.id AND e.seq = %s WHERE s.id = ?`, s.sessions, newestStarted)
}

func startedSince(s shape) string {
	return fmt.Sprintf(`
		SELECT s.id FROM %s s CROSS JOIN event e ON e.aggregate_id = s.id AND e.seq = %s
		 WHERE e.created >= ? ORDER BY s.id`, s.sessions, newestStarted)
}

// atWork gives those of sessions whose newest execution has no end of its own.
func atWork(ctx context.Context, q querier, s shape, sessions []string) ([]string, error) {
	fates := make(map[string]restart.Fate, len(sessions))
	if err := fatesOf(ctx, q, s, sessions, fates); err != nil {
		return nil, err
	}
	var working []string
	for _, id := range sessions {
		if o := fates[id].Outcome; o == restart.OutcomeInFlight || o == restart.OutcomeSuspended {
			working = append(working, id)
		}
	}
	return working, nil
}

// parsed is SQL for a column that holds JSON, {} where it doesn't: one broken
// row makes its session's fate unknown, and must not hide the others.
func parsed(column string) string {
	return fmt.Sprintf(`iif(json_valid(%[1]s), %[1]s, '{}')`, column)
}

// texts gives the one column of a query's answer.
func texts(ctx context.Context, q querier, query string, args ...any) ([]string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var column []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		column = append(column, text)
	}
	return column, rows.Err()
}

// list is a JSON array for json_each: one statement for any number of sessions.
func list(sessions []string) string {
	text, _ := json.Marshal(sessions) // strings always can be
	if sessions == nil {
		return "[]"
	}
	return string(text)
}

// executionOf is what an event says of its session's execution: started,
// succeeded, failed or interrupted; "" for other events.
func executionOf(event string) string {
	rest, ok := strings.CutPrefix(event, "session.execution.")
	if !ok {
		return ""
	}
	word, _, _ := strings.Cut(rest, ".")
	return word
}
