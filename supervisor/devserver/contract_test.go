package devserver

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoutesAreRecorded holds the list of calls to the recorded one.
func TestRoutesAreRecorded(t *testing.T) {
	t.Parallel()
	for _, rt := range routes {
		_, known := recorded().Paths[rt.path][strings.ToLower(rt.method)]
		if known == rt.claimsOnly {
			t.Errorf("%s %s: recorded %v, claims only %v", rt.method, rt.path, known, rt.claimsOnly)
		}
		if _, stated := additions[rt.method+" "+rt.path+" 204"]; rt.claimsOnly && !stated {
			t.Errorf("%s %s has no source", rt.method, rt.path)
		}
	}
}

// TestCheckerRejects makes sure that the checker of every other test can fail.
func TestCheckerRejects(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"missing":    `{"healthy":true,"version":"2"}`,
		"additional": `{"healthy":true,"version":"2","pid":1,"more":1}`,
		"type":       `{"healthy":true,"version":2,"pid":1}`,
		"enum":       `{"healthy":false,"version":"2","pid":1}`,
		"minimum":    `{"healthy":true,"version":"2","pid":0}`,
	} {
		if checkAnswer("GET", "/api/health", 200, []byte(body)) == nil {
			t.Errorf("%s: accepted %s", name, body)
		}
	}
	if err := checkAnswer("GET", "/api/health", 200, []byte(`{"healthy":true,"version":"2","pid":1}`)); err != nil {
		t.Error(err)
	}
	if checkAnswer("GET", "/api/session/ses_1", 418, nil) == nil {
		t.Error("accepted an unknown status")
	}
	if checkFrame(`{"id":"evt_1","created":1,"type":"session.renamed","data":{"sessionID":"ses_1","title":"x"}}`) == nil {
		t.Error("accepted an event without its place")
	}
}

// TestAnswers calls every route; process.try holds each answer to the recorded schema.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			p := newUser(t, k).start()
			id := p.begin("look [[shell echo hi]]")
			p.settle(id)
			session := "/api/session/" + id
			var list struct{ Data []message }
			p.want(200, "GET", session+"/message?order=desc&limit=2", nil, &list)
			if len(list.Data) != 2 || list.Data[0]["finish"] != "stop" {
				t.Errorf("the newest messages are %v", list.Data)
			}
			p.want(200, "GET", session+"/message/"+list.Data[0]["id"].(string), nil, nil)
			p.want(404, "GET", session+"/message/msg_none", nil, nil)
			p.want(200, "GET", session, nil, nil)
			p.want(200, "GET", "/api/session?parentID=null&limit=50", nil, nil)
			p.want(400, "GET", "/api/session?limit=x", nil, nil)
			p.want(200, "POST", session+"/synthetic", data{"text": "notice", "description": "d", "metadata": data{"a": 1}}, nil)
			p.settle(id)
			p.want(400, "POST", session+"/prompt", data{}, nil)
			interrupted := map[kind]int{early: 204, claims: 200}[k]
			p.want(interrupted, "POST", session+"/interrupt", nil, nil)
			p.want(map[kind]int{early: 404, claims: 204}[k], "POST", session+"/resume", nil, nil)
			for _, kind := range []string{"permission", "question", "form"} {
				p.want(200, "GET", session+"/"+kind, nil, nil)
			}
			p.want(404, "POST", session+"/permission/per_none/reply", data{"reply": "once"}, nil)
			p.want(404, "POST", session+"/question/que_none/reject", nil, nil)
			p.want(404, "POST", session+"/form/frm_none/cancel", nil, nil)
			for _, call := range []string{"GET ", "GET /message", "GET /context", "POST /interrupt", "POST /wait", "GET /permission"} {
				method, path, _ := strings.Cut(call, " ")
				p.want(404, method, "/api/session/ses_none"+path, nil, nil)
			}
			p.want(404, "POST", "/api/session/ses_none/prompt", data{"text": "x"}, nil)
			p.want(204, "DELETE", session, nil, nil)
			p.want(404, "GET", session, nil, nil)
			p.want(200, "POST", "/api/service/stop", data{"instanceID": "another"}, nil)
			password := p.reg.Password
			p.reg.Password = "wrong"
			p.want(401, "GET", "/api/health", nil, nil)
			p.want(401, "GET", "/api/session/active", nil, nil)
			p.reg.Password = password
		})
	}
}

// turn is one turn of an event stream: the types of its frames, and the keys of each type.
type turn struct {
	types []string
	keys  map[string][]string
}

// turns splits a stream at its inputs. Words of a streamed text count once; what
// comes from a request of its own (the title, and the usage after a turn) has no
// place in the order.
func turns(lines []string) ([]turn, error) {
	var list []turn
	for _, line := range lines {
		text, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var f map[string]any
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			return nil, err
		}
		name := f["type"].(string)
		if name == "session.input.admitted" {
			list = append(list, turn{keys: map[string][]string{}})
		}
		if len(list) == 0 {
			continue
		}
		last := &list[len(list)-1]
		last.keys[name] = keysOf("", f)
		if name == "session.renamed" || name == "session.usage.updated" {
			continue
		}
		if n := len(last.types); n == 0 || last.types[n-1] != name {
			last.types = append(last.types, name)
		}
	}
	return list, nil
}

// keysOf gives the paths of all keys, but those below free-form objects.
func keysOf(prefix string, object map[string]any) []string {
	var keys []string
	for key, value := range object {
		keys = append(keys, prefix+key)
		if inner, ok := value.(map[string]any); ok && key != "delta" {
			keys = append(keys, keysOf(prefix+key+".", inner)...)
		}
	}
	slices.Sort(keys)
	return keys
}

// TestEventFrames plays the three turns of the recorded stream and compares.
func TestEventFrames(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/v2-early-events.txt")
	if err != nil {
		t.Fatal(err)
	}
	want, err := turns(strings.Split(string(text), "\n"))
	if err != nil || len(want) != 3 {
		t.Fatalf("%d recorded turns, %v", len(want), err)
	}
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			p := newUser(t, k).start()
			stream := p.stream()
			id := p.begin("hello fast")
			var lines []string
			begun := 0 // where the turn begins in lines
			until := func(eventType string) {
				t.Helper()
				if slices.ContainsFunc(lines[begun:], func(line string) bool { return strings.Contains(line, `"type":"`+eventType+`"`) }) {
					return
				}
				for line := range stream {
					lines = append(lines, line)
					if text, ok := strings.CutPrefix(line, "data: "); ok {
						if err := checkFrame(text); err != nil {
							t.Error(err)
						}
					}
					if strings.Contains(line, `"type":"`+eventType+`"`) {
						return
					}
				}
				t.Fatalf("the stream ended before %s", eventType)
			}
			until("session.execution.succeeded")
			until("session.renamed")
			begun = len(lines)
			p.prompt(id, "go [[slow n=1000 ms=20]]")
			until("session.text.delta")
			p.want(map[kind]int{early: 204, claims: 200}[k], "POST", "/api/session/"+id+"/interrupt", nil, nil)
			until("session.execution.interrupted")
			p.prompt(id, "fail please [[fail]]")
			until("session.execution.failed")
			got, err := turns(lines)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(turn{})); diff != "" {
				t.Errorf("not as recorded (-recorded +ours):\n%s", diff)
			}
			if !strings.Contains(lines[0], `"type":"server.connected"`) {
				t.Errorf("the stream begins with %s", lines[0])
			}
		})
	}
}

// schemaOf describes every table and index of a database.
func schemaOf(t *testing.T, db *sql.DB) string {
	t.Helper()
	var out strings.Builder
	for _, query := range []string{
		`SELECT m.name, i.name, i.type, i."notnull", coalesce(i.dflt_value, ''), i.pk FROM sqlite_schema m, pragma_table_info(m.name) i WHERE m.type = 'table' ORDER BY m.name, i.cid`,
		`SELECT m.name, f."table", f."from", f."to", f.on_delete, f.id FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' ORDER BY m.name, f.id, f."from"`,
		`SELECT m.name, l.name, l."unique", l.partial, i.seqno, coalesce(i.name, '') FROM sqlite_schema m, pragma_index_list(m.name) l, pragma_index_info(l.name) i WHERE m.type = 'table' ORDER BY m.name, l.name, i.seqno`,
	} {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			row := make([]any, 6)
			for i := range row {
				row[i] = new(string)
			}
			if err := rows.Scan(row...); err != nil {
				t.Fatal(err)
			}
			for _, field := range row {
				fmt.Fprintf(&out, "%s|", *field.(*string))
			}
			out.WriteByte('\n')
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// recordedSchema is the SHA-256 of schemaOf for the schema that was recorded from a 2.0 preview of July 2026.
const recordedSchema = "3ec1514f0fc8df8d7b34f9fa8a0b9136a8bebad86a9da09b4fc1bb43b2e21e56"

func TestSchema(t *testing.T) {
	t.Parallel()
	schemas := map[kind]string{}
	for _, k := range both {
		st, err := openStore(t.Context(), filepath.Join(t.TempDir(), "opencode.db"), k)
		if err != nil {
			t.Fatal(err)
		}
		schemas[k] = schemaOf(t, st.db)
		for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "1", "busy_timeout": "5000", "foreign_keys": "1"} {
			var got string
			if err := st.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
				t.Errorf("%s: %s is %q (%v), want %q", k, pragma, got, err, want)
			}
		}
		if err := st.close(); err != nil {
			t.Fatal(err)
		}
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(schemas[early]))); sum != recordedSchema {
		t.Errorf("the early schema is not the recorded one: it has %s", sum)
	}
	// OPENCODE.md: the table is renamed, with resume_attempts, and its partial index with it.
	renamed := strings.NewReplacer("\nsession|", "\nsession_v2|", "|session|", "|session_v2|", "session_time_suspended_idx", "session_v2_time_suspended_idx", "autoindex_session_1", "autoindex_session_v2_1").Replace(schemas[early])
	want := strings.Split(renamed+"session_v2|resume_attempts|INTEGER|1|0|0|\n", "\n")
	got := strings.Split(schemas[claims], "\n")
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the claims schema differs from the documented one (-want +got):\n%s", diff)
	}
}

// TestSharedReference holds our trimmed copies to the whole recorded data, where that is at hand.
func TestSharedReference(t *testing.T) {
	t.Parallel()
	shared := os.Getenv("INTERMISSION_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "shared")
	}
	schema, err := os.ReadFile(filepath.Join(shared, "reference", "v2-early-schema.sql"))
	if err != nil {
		t.Logf("only against our copy: %v", err)
		return
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "reference.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(schemaOf(t, db)))); sum != recordedSchema {
		t.Errorf("our schema is not the recorded one, which has %s", sum)
	}
	text, err := os.ReadFile(filepath.Join(shared, "reference", "v2-early-openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var whole struct {
		Paths map[string]map[string]struct {
			Responses map[string]struct {
				Content map[string]struct{ Schema any }
			}
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	for name, schema := range recorded().Schemas {
		if diff := cmp.Diff(whole.Components.Schemas[name], schema); diff != "" {
			t.Errorf("schema %s (-recorded +our copy):\n%s", name, diff)
		}
	}
	for path, calls := range recorded().Paths {
		for method, call := range calls {
			for status, schema := range call.Responses {
				if diff := cmp.Diff(whole.Paths[path][method].Responses[status].Content["application/json"].Schema, schema); diff != "" {
					t.Errorf("%s %s %s (-recorded +our copy):\n%s", method, path, status, diff)
				}
			}
		}
	}
}
