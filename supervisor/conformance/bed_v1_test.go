//go:build linux

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
)

const stubModel = "stub-1"

// v1 is the real OpenCode 1.18 with the stub provider.
type v1 struct {
	s     *sandbox
	model *provider
}

func newV1(t testing.TB, s *sandbox) bed {
	t.Helper()
	b := &v1{s: s, model: startProvider(t)}
	config, err := json.MarshalIndent(map[string]any{
		"$schema": "https://opencode.ai/config.json",
		"provider": map[string]any{"stub": map[string]any{
			"npm":     "@ai-sdk/openai-compatible", // bundled
			"options": map[string]any{"baseURL": b.model.url, "apiKey": "x"},
			"models":  map[string]any{stubModel: map[string]any{}},
		}},
		"model":      "stub/" + stubModel,
		"permission": map[string]any{"bash": "allow", "edit": "allow"},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, string(config), "config", "opencode", "opencode.json")
	s.env = append(s.env, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1")
	return b
}

func (b *v1) command() []string          { return []string{opencodeV1, "serve"} }
func (b *v1) slow(words, ms int) string  { return fmt.Sprintf("[[slow %d %d]]", words, ms) }
func (b *v1) tool(command string) string { return fmt.Sprintf("[[bash %s]]", command) }
func (b *v1) planner() string            { return "plan" }
func (b *v1) toolName() string           { return "bash" }
func (b *v1) serverWords() []string      { return []string{opencodeV1, "serve"} }
func (b *v1) database() string           { return b.s.path("data", "opencode", "opencode.db") }

// connect reads the credentials that intermission made: v1 has no registration of its own.
func (b *v1) connect() (api, error) {
	var record struct{ URL, Password string }
	if err := readJSON(b.s.path("state", "intermission", "server.json"), &record); err != nil {
		return api{}, err
	}
	if record.URL == "" {
		return api{}, errors.New("server.json names no URL yet")
	}
	a := api{record.URL, record.Password}
	return a, a.healthyV1()
}

func (a api) healthyV1() error {
	var health struct{ Healthy bool }
	if err := a.call("GET", "/global/health", nil, &health); err != nil {
		return err
	}
	if !health.Healthy {
		return errors.New("not healthy")
	}
	return nil
}

var listening = regexp.MustCompile(`listening on (http://127\.0\.0\.1:\d+)`)

func (b *v1) alone(t testing.TB) (*process, api) {
	t.Helper()
	p := b.s.start(t, []string{"OPENCODE_SERVER_PASSWORD=secret"}, opencodeV1, "serve", "--hostname", "127.0.0.1", "--port", "0")
	var a api
	eventually(t, "a server of its own", func() error {
		out, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		m := listening.FindSubmatch(out)
		if m == nil {
			return fmt.Errorf("it says %q", out)
		}
		a = api{string(m[1]), "secret"}
		return a.healthyV1()
	})
	return p, a
}

// elsewhere is what v1 always starts: it knows no service mode.
func (b *v1) elsewhere(t testing.TB) (*process, api) { t.Helper(); return b.alone(t) }

func (b *v1) create(a api, directory string) (string, error) {
	var session struct{ ID string }
	err := a.call("POST", "/session?directory="+url.QueryEscape(directory), map[string]any{}, &session)
	return session.ID, err
}

func (b *v1) prompt(a api, id, text, agent string) error {
	in := map[string]any{"parts": []any{map[string]any{"type": "text", "text": text}}}
	if agent != "" {
		in["agent"] = agent
	}
	return a.call("POST", "/session/"+id+"/prompt_async", in, nil)
}

func (b *v1) active(a api, id, directory string) (bool, error) {
	var statuses map[string]struct{ Type string }
	err := a.call("GET", "/session/status?directory="+url.QueryEscape(directory), nil, &statuses)
	return statuses[id].Type == "busy", err
}

func (b *v1) delete(a api, id string) error { return a.call("DELETE", "/session/"+id, nil, nil) }

func (b *v1) goOn(directive string) {
	b.model.mu.Lock()
	defer b.model.mu.Unlock()
	b.model.proceed = directive
}

func (b *v1) turns(_ testing.TB, w work) int { return b.model.count(kindTurn, w.marker) }
func (b *v1) requests(testing.TB) int        { return b.model.total() }

func (b *v1) asked(_ testing.TB, w work) bool {
	return b.model.count(kindTurn, w.marker) > 0 && b.model.count(kindTitle, w.marker) > 0
}

func (b *v1) history(t testing.TB, id string) []string {
	t.Helper()
	return append(
		rows(t, b.database(), `SELECT id || ' ' || data FROM message WHERE session_id = ? ORDER BY id`, id),
		rows(t, b.database(), `SELECT id || ' ' || message_id || ' ' || data FROM part WHERE session_id = ? ORDER BY id`, id)...)
}

func (b *v1) agent(t testing.TB, id string) string {
	t.Helper()
	return oneRow(t, b.database(), `SELECT ifnull(json_extract(data, '$.agent'), '') FROM message
		WHERE session_id = ? AND json_extract(data, '$.role') = 'assistant' ORDER BY time_created DESC, id DESC LIMIT 1`, id)
}

func (b *v1) interruptions(t testing.TB, id string) int {
	t.Helper()
	return len(rows(t, b.database(), `SELECT id FROM message WHERE session_id = ? AND json_extract(data, '$.error.name') = 'MessageAbortedError'`, id))
}

func (b *v1) text(t testing.TB, id string) string {
	t.Helper()
	return strings.Join(rows(t, b.database(), `SELECT json_extract(p.data, '$.text') FROM part p JOIN message m ON m.id = p.message_id
		WHERE p.session_id = ? AND json_extract(m.data, '$.role') = 'assistant' AND json_extract(p.data, '$.type') = 'text' ORDER BY p.id`, id), "")
}
