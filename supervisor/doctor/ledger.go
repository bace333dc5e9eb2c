package doctor

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"intermission/restart"
)

// ledgerRows bounds each table of the ledger in a bundle; the newest are taken.
const ledgerRows = 5000

// ledgerTables are the columns that go into a bundle: who, when and what, and no text.
var ledgerTables = []struct{ name, query, texts string }{
	{"incarnations", `SELECT id, generation, started_at, ended_at FROM incarnation ORDER BY started_at DESC LIMIT ?`, ``},
	{"sessions", `SELECT id, parent_id, generation, incarnation, time_claimed, attempts, time_seen, time_suspended, last_suspended, cause,
		phase, consumed, consent, covered_by, resumes, ours, waiting, shown, confirmed FROM session ORDER BY max(time_seen, last_suspended) DESC LIMIT ?`, ``},
	{"parked", `SELECT seq, kind, session, claimed_at, attempts, job, child, status, time_parked, done_at FROM parked ORDER BY seq DESC LIMIT ?`, ``},
	{"journal", `SELECT seq, time, session, time_suspended, what FROM journal ORDER BY seq DESC LIMIT ?`,
		`SELECT seq, time, session, time_suspended, what, detail FROM journal ORDER BY seq DESC LIMIT ?`},
}

// gatherLedger takes what the ledger knows without texts, and remembers the texts
// in it: they may stand in logs.
func (c *collection) gatherLedger(ctx context.Context) {
	info, err := os.Lstat(c.paths.Ledger)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: c.paths.Ledger, Err: errors.New("isn't a regular file")}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.lack("ledger.json: %v", err)
		return
	}
	db, err := openAside(c.paths.Ledger)
	if err != nil {
		c.lack("ledger.json: %v", err)
		return
	}
	defer db.Close()
	tables := map[string]any{}
	for _, t := range ledgerTables {
		query := t.query
		if c.prompts && t.texts != "" {
			query = t.texts
		}
		rows, err := rowsOf(ctx, db, query)
		if err != nil {
			c.lack("ledger.json, %s: %v", t.name, err)
			continue
		}
		tables[t.name] = rows
	}
	c.addJSON("ledger.json", tables)
	if err := c.textsOf(ctx, db); err != nil {
		c.lack("what the ledger quotes of sessions could not be read, so look for it in the logs yourself: %v", err)
	}
}

// rowsOf gives rows as JSON objects do.
func rowsOf(ctx context.Context, db *sql.DB, query string) (list []map[string]any, err error) {
	rows, err := db.QueryContext(ctx, query, ledgerRows)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	list = []map[string]any{}
	for rows.Next() {
		values := make([]any, len(names))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			return nil, err
		}
		row := map[string]any{}
		for i, name := range names {
			row[name] = *values[i].(*any)
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// textsOf remembers titles, prompts, inputs of tools and commands.
func (c *collection) textsOf(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `
		SELECT description, '' FROM session WHERE description IS NOT NULL UNION ALL
		SELECT '', text FROM parked`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var description, text string
		if err := rows.Scan(&description, &text); err != nil {
			return err
		}
		c.text(text)
		var d restart.Description
		if json.Unmarshal([]byte(description), &d) != nil {
			continue
		}
		c.text(d.Title)
		if d.LastPrompt != nil {
			c.text(d.LastPrompt.Text)
		}
		if d.LastTool != nil {
			c.text(d.LastTool.Input)
		}
	}
	return rows.Err()
}
