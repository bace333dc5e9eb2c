package opencode

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The kinds of database, as Database.Kind gives them.
const (
	KindAbsent = "absent" // no file yet, or one without a table: a first start
	KindV1     = "v1"     // table session without a claim column; message and part
	KindEarly  = "early"  // table session with one
	KindClaims = "claims" // table session_v2
)

// claimColumns are the names under which the time of a claim was seen (2026).
var claimColumns = []string{"time_suspended", "execution_claimed_at"}

// shape is what one database looks like, found by its tables and columns and
// never by a version.
type shape struct {
	kind     string
	sessions string   // the table of sessions
	claim    string   // its column that makes a claim; "" for v1
	owner    []string // its columns that name the claim's owner, where it has them
	attempts bool     // it has resume_attempts
	agent    bool     // it has agent and model
	jobs     []string // the columns of kv, where background jobs stand; empty when there are none
}

// querier is the held read connection, inside a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// column is one column of a table.
type column struct {
	name     string
	required bool // NOT NULL
}

// detect finds the shape that a server of generation gen would meet. Its error
// is an *UnknownShapeError when nothing may be started on what it found.
func detect(ctx context.Context, q querier, path string, gen Generation) (shape, error) {
	var started bool
	if err := q.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sqlite_master)`).Scan(&started); err != nil {
		return shape{}, err
	}
	if !started { // only just created
		return shape{kind: KindAbsent}, nil
	}
	tables, err := tablesOf(ctx, q)
	if err != nil {
		return shape{}, err
	}
	s, reason := choose(tables, gen)
	if reason == "" {
		reason = s.lacks(tables)
	}
	if reason != "" {
		return shape{}, &UnknownShapeError{Path: path, Reason: reason}
	}
	return s, nil
}

// choose tells the kind, or why it can't be told. v1 and the previews of v2 can
// share a file: then the program that runs it decides.
func choose(tables map[string][]column, gen Generation) (s shape, reason string) {
	old, current := tables["session"], tables["session_v2"]
	switch {
	case gen == V1 && old != nil, old != nil && current == nil && len(claimsOf(old)) == 0:
		s = shape{kind: KindV1, sessions: "session"}
	case gen == V1:
		return s, "it has no table session"
	case old == nil && current == nil:
		return s, "it has neither table session nor session_v2"
	case current != nil && len(claimsOf(old)) > 0:
		return s, "both tables session and session_v2 hold claims"
	case current != nil:
		s = shape{kind: KindClaims, sessions: "session_v2"}
	default:
		s = shape{kind: KindEarly, sessions: "session"}
	}
	s.describe(tables, gen)
	return s, ""
}

// describe fills in the columns that not every release has.
func (s *shape) describe(tables map[string][]column, gen Generation) {
	columns := tables[s.sessions]
	s.agent = has(columns, "agent") && has(columns, "model")
	if gen == V1 {
		return // it neither claims nor has jobs, whatever a preview of v2 left in its file
	}
	if s.kind != KindV1 {
		if names := claimsOf(columns); len(names) == 1 {
			s.claim = names[0]
		}
		s.attempts = has(columns, "resume_attempts")
		for _, c := range columns {
			if strings.HasPrefix(c.name, "claim_") && !c.required {
				s.owner = append(s.owner, c.name)
			}
		}
	}
	for _, c := range tables["kv"] {
		s.jobs = append(s.jobs, c.name)
	}
}

// lacks says what is missing of that which we read or write, "" when nothing is.
func (s *shape) lacks(tables map[string][]column) string {
	needed := map[string][]string{}
	switch s.kind {
	case KindV1:
		needed["session"] = []string{"id", "parent_id", "directory", "title", "time_archived"}
		needed["message"] = []string{"id", "session_id", "time_created", "data"}
		needed["part"] = []string{"id", "message_id", "data"}
	default:
		needed[s.sessions] = []string{"id", "parent_id", "directory", "title", "time_archived"}
		needed["event"] = []string{"aggregate_id", "seq", "created", "type", "data"}
		needed["session_message"] = []string{"id", "session_id", "type", "seq", "time_created", "data"}
		if s.claim == "" {
			return fmt.Sprintf("table %s has none or several of the columns %s", s.sessions, strings.Join(claimColumns, ", "))
		}
	}
	if s.kind == KindClaims || len(s.jobs) > 0 {
		needed["kv"] = []string{"key", "value"}
	}
	for _, table := range slices.Sorted(maps.Keys(needed)) {
		if tables[table] == nil {
			return "it has no table " + table
		}
		for _, name := range needed[table] {
			if !has(tables[table], name) {
				return fmt.Sprintf("table %s has no column %s", table, name)
			}
		}
	}
	return ""
}

// claimsOf gives the columns that make a claim: one, unless the table has none
// or so many that the right one can't be told.
func claimsOf(columns []column) (names []string) {
	for _, name := range claimColumns {
		if has(columns, name) {
			names = append(names, name)
		}
	}
	return names
}

func has(columns []column, name string) bool {
	return slices.ContainsFunc(columns, func(c column) bool { return c.name == name })
}

// tablesOf gives the columns of the tables that tell the kind or are read.
func tablesOf(ctx context.Context, q querier) (map[string][]column, error) {
	rows, err := q.QueryContext(ctx, `
		SELECT m.name, c.name, c."notnull" FROM sqlite_master m, pragma_table_info(m.name) c
		 WHERE m.type = 'table'
		   AND m.name IN ('session', 'session_v2', 'message', 'part', 'event', 'session_message', 'kv')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	tables := map[string][]column{}
	for rows.Next() {
		var table string
		var c column
		if err := rows.Scan(&table, &c.name, &c.required); err != nil {
			return nil, err
		}
		tables[table] = append(tables[table], c)
	}
	return tables, rows.Err()
}
