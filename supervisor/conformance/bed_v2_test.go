//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// v2 is the dev server, in one of its two kinds: no published OpenCode 2 can be had.
type v2 struct {
	s     *sandbox
	table string // of the sessions
}

func newEarly(t testing.TB, s *sandbox) bed  { t.Helper(); return newV2(s, "early", "session") }
func newClaims(t testing.TB, s *sandbox) bed { t.Helper(); return newV2(s, "claims", "session_v2") }

func newV2(s *sandbox, kind, table string) *v2 {
	b := &v2{s: s, table: table}
	s.env = append(s.env,
		"INTERMISSION_DEVSERVER_KIND="+kind,
		"INTERMISSION_DEVSERVER_REQUESTS="+b.journal(),
		"OPENCODE_PASSWORD=secret", // plain serve only
	)
	b.goOn(b.slow(3, 5))
	return b
}

func (b *v2) command() []string          { return []string{program, "devserver", "serve", "--service"} }
func (b *v2) serverWords() []string      { return []string{program, "devserver", "serve"} }
func (b *v2) slow(words, ms int) string  { return fmt.Sprintf("[[slow n=%d ms=%d]]", words, ms) }
func (b *v2) tool(command string) string { return fmt.Sprintf("[[shell %s]]", command) }
func (b *v2) planner() string            { return "" }
func (b *v2) toolName() string           { return "shell" }
func (b *v2) database() string           { return b.s.path("data", "opencode", "opencode.db") }
func (b *v2) journal() string            { return b.s.path("requests.jsonl") }

// registration is what a service publishes of itself.
type registration struct {
	ID, URL, Password string
	PID               int
}

func (b *v2) registered() (registration, error) {
	var r registration
	return r, readJSON(b.s.path("state", "opencode", "service.json"), &r)
}

func (b *v2) connect() (api, error) {
	r, err := b.registered()
	if err != nil {
		return api{}, err
	}
	a := api{r.URL, r.Password}
	return a, a.healthyV2(r.PID)
}

func (a api) healthyV2(pid int) error {
	var health struct {
		Healthy bool
		PID     int
	}
	if err := a.call("GET", "/api/health", nil, &health); err != nil {
		return err
	}
	if !health.Healthy || health.PID != pid {
		return fmt.Errorf("healthy %v, pid %d and not %d", health.Healthy, health.PID, pid)
	}
	return nil
}

func (b *v2) alone(t testing.TB) (*process, api) {
	t.Helper()
	p := b.s.start(t, nil, program, b.command()[1:]...)
	var a api
	eventually(t, "a service of its own", func() error {
		r, err := b.registered()
		if err != nil {
			return err
		}
		if r.PID != p.pid() {
			return fmt.Errorf("pid %d is registered, not %d", r.PID, p.pid())
		}
		a, err = b.connect()
		return err
	})
	return p, a
}

func (b *v2) elsewhere(t testing.TB) (*process, api) {
	t.Helper()
	p := b.s.start(t, nil, program, "devserver", "serve")
	var a api
	eventually(t, "a server elsewhere", func() error {
		out, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		m := listening.FindSubmatch(out)
		if m == nil {
			return fmt.Errorf("it says %q", out)
		}
		a = api{string(m[1]), "secret"}
		return a.healthyV2(p.pid())
	})
	return p, a
}

func (b *v2) create(a api, directory string) (string, error) {
	var session struct{ Data struct{ ID string } }
	err := a.call("POST", "/api/session", map[string]any{"location": map[string]any{"directory": directory}}, &session)
	return session.Data.ID, err
}

// prompt names no agent: a v2 session has its own.
func (b *v2) prompt(a api, id, text, _ string) error {
	return a.call("POST", "/api/session/"+id+"/prompt", map[string]any{"text": text}, nil)
}

func (b *v2) active(a api, id, _ string) (bool, error) {
	var active struct{ Data map[string]any }
	err := a.call("GET", "/api/session/active", nil, &active)
	_, ok := active.Data[id]
	return ok, err
}

func (b *v2) delete(a api, id string) error { return a.call("DELETE", "/api/session/"+id, nil, nil) }

func (b *v2) goOn(directive string) {
	b.s.env = append(b.s.env, "INTERMISSION_DEVSERVER_CONTINUE="+directive)
}

// lines reads the dev server's journal: one JSON line a request to its model.
func (b *v2) lines(t testing.TB) []string {
	t.Helper()
	raw, err := os.ReadFile(b.journal())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(raw), func(r rune) bool { return r == '\n' })
}

func (b *v2) turns(t testing.TB, w work) int {
	t.Helper()
	n := 0
	for _, line := range b.lines(t) {
		if strings.Contains(line, w.id) {
			n++
		}
	}
	return n
}

func (b *v2) requests(t testing.TB) int       { t.Helper(); return len(b.lines(t)) }
func (b *v2) asked(t testing.TB, w work) bool { t.Helper(); return b.turns(t, w) > 0 }

func (b *v2) history(t testing.TB, id string) []string {
	t.Helper()
	return rows(t, b.database(), `SELECT seq || ' ' || id || ' ' || type || ' ' || data FROM session_message WHERE session_id = ? ORDER BY seq`, id)
}

func (b *v2) agent(t testing.TB, id string) string {
	t.Helper()
	return oneRow(t, b.database(), `SELECT ifnull(agent, '') FROM `+b.table+` WHERE id = ?`, id)
}

func (b *v2) interruptions(t testing.TB, id string) int {
	t.Helper()
	return len(rows(t, b.database(), `SELECT id FROM event WHERE aggregate_id = ? AND type LIKE 'session.execution.interrupted%' AND json_extract(data, '$.reason') = 'user'`, id))
}

func (b *v2) text(t testing.TB, id string) string {
	t.Helper()
	return strings.Join(rows(t, b.database(), `SELECT json_extract(part.value, '$.text') FROM session_message m, json_each(m.data, '$.content') part
		WHERE m.session_id = ? AND m.type = 'assistant' AND json_extract(part.value, '$.type') = 'text' ORDER BY m.seq, part.key`, id), "")
}
