package opencode

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"intermission/restart"
)

// What a description takes of long texts and long histories. The bounds are
// applied in SQL, so that a session with megabytes of tool input or a hundred
// thousand messages costs little and none of it reaches us.
const (
	maxText   = 4096 // characters
	maxSteps  = 20   // newest assistant messages in which the last tool is looked for
	maxWalk   = 1000 // newest messages in which v1's last prompt is looked for
	maxFamily = 200  // newest children that are looked at
	maxOurs   = 50   // newest prompts in which one that a person wrote is looked for
)

// Describe implements restart.Database. The title of a session that its server hasn't
// named yet is what the person last wrote to it. WaitingFor stays empty: that is not in
// the database. Texts are as the session holds them, cut in length and to one
// line, and otherwise untrusted.
func (d *Database) Describe(ctx context.Context, sessions []string) (map[string]restart.Description, error) {
	descriptions := make(map[string]restart.Description, len(sessions))
	err := d.read(ctx, func(_ querier, s shape) error {
		if s.kind == KindAbsent {
			return nil
		}
		p := newPrepared(d.conn)
		defer func() { _ = p.close() }() // they have only read
		// What is asked of one session is bounded: watching ctx in each query costs more than asking here.
		each := context.WithoutCancel(ctx)
		for _, id := range sessions {
			if err := ctx.Err(); err != nil {
				return err
			}
			desc, err := describe(each, p, s, id)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return fmt.Errorf("session %s: %w", id, err)
			}
			descriptions[id] = desc
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return descriptions, nil
}

// Parents gives the parent of each session that has one. It costs little.
func (d *Database) Parents(ctx context.Context, sessions []string) (map[string]string, error) {
	parents := map[string]string{}
	err := d.read(ctx, func(q querier, s shape) error {
		if s.kind == KindAbsent {
			return nil
		}
		rows, err := q.QueryContext(ctx, fmt.Sprintf(
			`SELECT id, parent_id FROM %s WHERE id IN (SELECT value FROM json_each(?)) AND parent_id <> ''`, s.sessions), list(sessions))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, parent string
			if err := rows.Scan(&id, &parent); err != nil {
				return err
			}
			parents[id] = parent
		}
		return rows.Err()
	})
	return parents, err
}

// describe is sql.ErrNoRows for a session that is gone.
func describe(ctx context.Context, q querier, s shape, id string) (restart.Description, error) {
	var desc restart.Description
	err := q.QueryRowContext(ctx, fmt.Sprintf(
		`SELECT substr(title, 1, %d), directory, coalesce(parent_id, '') FROM %s WHERE id = ?`, maxText, s.sessions), id).
		Scan(&desc.Title, &desc.Directory, &desc.Parent)
	if err != nil {
		return desc, err
	}
	children, err := texts(ctx, q, fmt.Sprintf(
		`SELECT id FROM %s WHERE parent_id = ? ORDER BY rowid DESC LIMIT %d`, s.sessions, maxFamily), id)
	if err == nil {
		desc.Children, err = atWork(ctx, q, s, children)
	}
	if err == nil {
		desc.LastPrompt, err = lastPrompt(ctx, q, s, id)
		desc.Title = name(desc.Title, desc.LastPrompt)
	}
	if err == nil {
		desc.LastTool, err = lastTool(ctx, q, s, id)
	}
	if err == nil && s.kind == KindV1 {
		desc.Agent, desc.Model, err = continuation(ctx, q, s, id)
	}
	return desc, err
}

// recent is SQL that keeps a walk back through a v1 session's messages m short.
var recent = fmt.Sprintf(`m.session_id = ?1 AND m.time_created >= coalesce((
	SELECT time_created FROM message WHERE session_id = ?1 ORDER BY time_created DESC, id DESC LIMIT 1 OFFSET %d), 0)`, maxWalk)

// lastPrompt leaves out what no person wrote: synthetic messages (v2) and parts (v1),
// and what we delivered to continue the session. It goes back from one to the next,
// so that mostly only one is parsed.
func lastPrompt(ctx context.Context, q querier, s shape, id string) (*restart.Prompt, error) {
	query := fmt.Sprintf(`
		SELECT m.id, coalesce(substr(%s ->> '$.text', 1, %d), ''), m.time_created FROM session_message m
		 WHERE m.session_id = ? AND m.type = 'user' ORDER BY m.seq DESC LIMIT %d`, parsed("m.data"), maxText, maxOurs)
	if s.kind == KindV1 {
		query = fmt.Sprintf(`
			SELECT m.id, (SELECT substr(%[1]s ->> '$.text', 1, %[2]d) FROM part p
			         WHERE p.message_id = m.id AND %[1]s ->> '$.type' = 'text' AND NOT coalesce(%[1]s ->> '$.synthetic', 0)
			         ORDER BY p.id LIMIT 1) AS text, m.time_created
			  FROM message m WHERE %[3]s AND %[4]s ->> '$.role' = 'user' AND text IS NOT NULL
			 ORDER BY m.time_created DESC, m.id DESC LIMIT %[5]d`, parsed("p.data"), maxText, recent, parsed("m.data"), maxOurs)
	}
	rows, err := q.QueryContext(ctx, query, id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var message string
		var prompt restart.Prompt
		if err := rows.Scan(&message, &prompt.Text, &prompt.At); err != nil {
			return nil, err
		}
		if !isKey(id, message) {
			prompt.Text = firstLine(prompt.Text)
			return &prompt, nil
		}
	}
	return nil, rows.Err()
}

// unnamed is the title of a session that its server hasn't named yet (seen on
// 1.18.33): it tells a person nothing but a date.
var unnamed = regexp.MustCompile(`^(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z$`)

// name is what a session is called: its title, or what the person last wrote to it
// while its server has not named it.
func name(title string, last *restart.Prompt) string {
	if last != nil && last.Text != "" && unnamed.MatchString(title) {
		return last.Text
	}
	return title
}

// statusV1 is SQL for the status of a v1 tool. What an abort or a dispose ended
// (read in the program of 1.18.33) stands there as an error that is marked
// interrupted, but for a shell that ended in time: that is completed, without an
// exit code, and the end of its output tells. How far either had come isn't known.
const statusV1 = `iif(p.data ->> '$.state.metadata.interrupted' OR p.data ->> '$.state.status' = 'completed'
	AND p.data ->> '$.state.metadata.exit' IS NULL AND substr(p.data ->> '$.state.output', -80) LIKE '%User aborted the command%',
	'running', p.data ->> '$.state.status')`

// lastTool looks in one message after the other, the newest first, so that
// mostly only one is parsed: SQLite looks for the next row's when it is asked for it.
func lastTool(ctx context.Context, q querier, s shape, id string) (*restart.Tool, error) {
	query := `SELECT (SELECT %s FROM json_each(` + parsed("m.data") + `, '$.content') c
			WHERE c.value ->> '$.type' = 'tool' ORDER BY c.key DESC LIMIT 1)
		FROM session_message m WHERE m.session_id = ? AND m.type = 'assistant' ORDER BY m.seq DESC LIMIT %d`
	call, name, status := "c.value", "$.name", "c.value ->> '$.state.status'"
	if s.kind == KindV1 {
		query = `SELECT (SELECT %s FROM part p
				WHERE p.message_id = m.id AND ` + parsed("p.data") + ` ->> '$.type' = 'tool' ORDER BY p.id DESC LIMIT 1)
			FROM message m WHERE m.session_id = ? ORDER BY m.time_created DESC, m.id DESC LIMIT %d`
		call, name, status = "p.data", "$.tool", statusV1
	}
	// A shell's command is its input, whatever else was given; of other tools it is all of it.
	tool := fmt.Sprintf(`json_array(coalesce(%[1]s ->> '%[2]s', ''), coalesce(substr(iif(json_type(%[1]s, '$.state.input.command') = 'text',
		%[1]s ->> '$.state.input.command', %[1]s ->> '$.state.input'), 1, %[3]d), ''), coalesce(%[4]s, ''))`,
		call, name, maxText, status)
	rows, err := q.QueryContext(ctx, fmt.Sprintf(query, tool, maxSteps), id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var found sql.NullString
		if err := rows.Scan(&found); err != nil {
			return nil, err
		}
		if found.Valid {
			return parseTool(found.String)
		}
	}
	return nil, rows.Err()
}

func parseTool(text string) (*restart.Tool, error) {
	var v [3]any // a name or status that is no text is shown as it is
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	tool := restart.Tool{Name: fmt.Sprint(v[0]), Input: oneLine(fmt.Sprint(v[1])), Status: fmt.Sprint(v[2])}
	if tool.Status != "completed" && tool.Status != "error" {
		tool.Status = "running" // pending and streaming too: it may have had effects
	}
	return &tool, nil
}

// continuation is what a prompt that continues a v1 session must name: agent
// and model of the newest user message. Not of the newest answer, which may be a
// compaction's. The session's own columns, where it has them, are the second choice.
func continuation(ctx context.Context, q querier, s shape, id string) (agent, model string, err error) {
	const object = `iif(%[1]s IS NULL, NULL, json_object('providerID', %[2]s, 'modelID', %[1]s))`
	modelOf := fmt.Sprintf(object, `m.data ->> '$.model.modelID'`, `m.data ->> '$.model.providerID'`)
	queries := []string{fmt.Sprintf(`
		SELECT m.data ->> '$.agent', %s FROM message m WHERE %s AND %s ->> '$.role' = 'user'
		 ORDER BY m.time_created DESC, m.id DESC LIMIT 1`, modelOf, recent, parsed("m.data"))}
	if s.agent {
		modelOf = fmt.Sprintf(object, parsed("m.model")+` ->> '$.id'`, parsed("m.model")+` ->> '$.providerID'`)
		queries = append(queries, fmt.Sprintf(`SELECT m.agent, %s FROM session m WHERE m.id = ?`, modelOf))
	}
	for _, query := range queries {
		var a, m sql.NullString
		if err := q.QueryRowContext(ctx, query, id).Scan(&a, &m); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return "", "", err
		}
		agent, model = cmp.Or(agent, a.String), cmp.Or(model, m.String)
	}
	return agent, model, nil
}

// firstLine is the first line of text that isn't blank, with a sign when others follow.
func firstLine(text string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	line = strings.TrimSpace(line)
	if more != "" { // and not blank, since the end was trimmed
		line += " …"
	}
	return line
}

// oneLine shows where lines of a command end: they don't read as one.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, " ⏎ ")
}
