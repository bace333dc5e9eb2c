package opencode

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

func describeOne(t *testing.T, d *Database, id string) restart.Description {
	t.Helper()
	all, err := d.Describe(t.Context(), []string{id, "ses_gone"})
	if err != nil {
		t.Fatal(err)
	}
	desc, ok := all[id]
	if !ok || len(all) != 1 {
		t.Fatalf("described %v", all)
	}
	return desc
}

func TestDescribeV2(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{KindEarly, KindClaims} {
		s := newServer(t, kind)
		s.session("ses_1", "parent_id = 'ses_0', title = 'a title'")
		for _, child := range []string{"ses_working", "ses_done", "ses_other"} {
			s.session(child, "parent_id = 'ses_1'")
			s.event(child, "session.execution.started.1", `{}`, 1)
		}
		s.exec(`UPDATE ` + s.table() + ` SET parent_id = 'ses_2' WHERE id = 'ses_other'`)
		s.event("ses_done", "session.execution.succeeded.1", `{}`, 1)
		s.message("ses_1", "msg_9", "user", `{"text":"an old one","time":{"created":10}}`, 10)
		s.message("ses_1", "msg_2", "assistant", `{"content":[{"type":"tool","id":"c0","name":"read","state":{"status":"completed","input":{"path":"/x"}}}]}`, 11)
		s.message("ses_1", "msg_1", "user", `{"text":"\n  build it\nand more","time":{"created":12}}`, 12)
		s.message("ses_1", "msg_3", "assistant", `{"content":[
			{"type":"text","text":"ok"},
			{"type":"tool","id":"c1","name":"read","state":{"status":"completed","input":{"path":"/y"}}},
			{"type":"tool","id":"c2","name":"shell","state":{"status":"running","input":{"command":"cd /z\nmake","timeout":5},"structured":{},"content":[]}}]}`, 13)
		s.message("ses_1", "msg_4", "synthetic", `{"text":"a job ended"}`, 14)
		s.message("ses_1", "msg_5", "assistant", `{"content":[{"type":"text","text":"…"}]}`, 15)

		want := restart.Description{
			Title: "a title", Directory: "/home/user/proj", Parent: "ses_0", Children: []string{"ses_working"},
			LastPrompt: &restart.Prompt{Text: "build it …", At: 12},
			LastTool:   &restart.Tool{Name: "shell", Input: "cd /z ⏎ make", Status: "running"},
		}
		if diff := cmp.Diff(want, describeOne(t, s.open(V2), "ses_1")); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		parents, err := s.open(V2).Parents(t.Context(), []string{"ses_1", "ses_working", "ses_gone"})
		if diff := cmp.Diff(map[string]string{"ses_1": "ses_0", "ses_working": "ses_1"}, parents); diff != "" || err != nil {
			t.Errorf("%s: %v %s", kind, err, diff)
		}
	}
}

func TestDescribeV1(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindV1)
	s.session("ses_1", `title = 'a title', agent = 'build', model = '{"id":"m0","providerID":"p0"}'`)
	s.session("ses_child", "parent_id = 'ses_1'")
	s.messageV1("ses_child", "msg_c", 1, `{"role":"user"}`)
	s.messageV1("ses_1", "msg_1", 10, `{"role":"user","agent":"plan","model":{"providerID":"stub","modelID":"stub-1"}}`,
		`{"type":"text","text":"environment","synthetic":true}`, `{"type":"text","text":"plan it\nwell"}`)
	s.messageV1("ses_1", "msg_2", 11, `{"role":"assistant","agent":"plan","time":{"created":11,"completed":12},"finish":"tool-calls"}`,
		`{"type":"step-start"}`,
		`{"type":"tool","tool":"bash","callID":"c1","state":{"status":"error","input":{"command":"false"},"error":"x"}}`,
		`{"type":"tool","tool":"write","callID":"c2","state":{"status":"pending","input":{"filePath":"/x","content":"y"},"raw":""}}`)
	s.messageV1("ses_1", "msg_3", 13, `{"role":"user","agent":"plan","model":{"providerID":"stub","modelID":"stub-1"}}`,
		`{"type":"text","text":"continue","synthetic":true}`)
	s.messageV1("ses_1", "msg_4", 14, `{"role":"assistant","agent":"compaction","summary":true,"time":{"created":14}}`)

	want := restart.Description{
		Title: "a title", Directory: "/home/user/proj", Children: []string{"ses_child"},
		LastPrompt: &restart.Prompt{Text: "plan it …", At: 10},
		LastTool:   &restart.Tool{Name: "write", Input: `{"filePath":"/x","content":"y"}`, Status: "running"},
		Agent:      "plan", Model: `{"providerID":"stub","modelID":"stub-1"}`,
	}
	if diff := cmp.Diff(want, describeOne(t, s.open(V1), "ses_1")); diff != "" {
		t.Error(diff)
	}
}

// What a person wrote stands under what we delivered to continue their session, also
// when that was done again and again.
func TestLastPromptIsThePersons(t *testing.T) {
	t.Parallel()
	key := func(at int64) string { return Key(restart.Delivery{Session: "ses_1", Suspended: at}) }
	for _, kind := range []string{KindV1, KindEarly} {
		s := newServer(t, kind)
		s.session("ses_1", "title = 'New session - 2026-11-30T20:28:03.742Z'")
		s.session("ses_2", "title = 'New session - 2026-11-30T20:28:03.742Z'")
		say := func(session, id, text string, at int64) {
			if kind == KindV1 {
				s.messageV1(session, id, at, `{"role":"user"}`, fmt.Sprintf(`{"type":"text","text":%q}`, text))
			} else {
				s.message(session, id, "user", fmt.Sprintf(`{"text":%q}`, text), at)
			}
		}
		gen := V2
		if kind == KindV1 {
			gen = V1
		}
		for at := range int64(3) {
			say("ses_2", Key(restart.Delivery{Session: "ses_2", Suspended: 1796058701000 + at}), "Continue", 1796058702000+at)
		}
		say("ses_1", "msg_1", "fix it", 1796058701000)
		say("ses_1", key(1796058701234), "Continue from where you left off", 1796058702000)
		say("ses_1", key(1796058702234), "These jobs were lost", 1796058703000)
		d := s.open(gen)
		got := describeOne(t, d, "ses_1")
		if diff := cmp.Diff(&restart.Prompt{Text: "fix it", At: 1796058701000}, got.LastPrompt); diff != "" || got.Title != "fix it" {
			t.Errorf("%s: %q %s", kind, got.Title, diff)
		}
		if got := describeOne(t, d, "ses_2"); got.LastPrompt != nil || got.Title != "New session - 2026-11-30T20:28:03.742Z" {
			t.Errorf("%s, of whom nobody wrote anything: %+v", kind, got)
		}
	}
}

func TestDescribeV1FallsBackToTheSession(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindV1)
	s.session("ses_1", `agent = 'build', model = '{"id":"m0","providerID":"p0"}'`)
	desc := describeOne(t, s.open(V1), "ses_1")
	if desc.Agent != "build" || desc.Model != `{"providerID":"p0","modelID":"m0"}` || desc.LastPrompt != nil || desc.LastTool != nil {
		t.Errorf("%+v", desc)
	}
}

// The state of a tool is told on the careful side: what isn't surely over may have had effects.
func TestToolStatus(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly)
	for status, want := range map[string]string{
		"streaming": "running", "pending": "running", "running": "running", "completed": "completed", "error": "error", "tomorrow's": "running",
	} {
		id := "ses_" + status
		s.session(id, "")
		s.message(id, "msg_"+status, "assistant",
			fmt.Sprintf(`{"content":[{"type":"tool","name":"write","state":{"status":"%s","input":"{\"path\":"}}]}`, status), 1)
		d := s.open(V2)
		if got := describeOne(t, d, id).LastTool; got == nil || got.Status != want || got.Input != `{"path":` {
			t.Errorf("%s: %+v", status, got)
		}
	}
}

// What v1's dispose has ended had been in flight, whatever its row says (rows of 1.18.33).
func TestToolStatusV1(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindV1)
	for name, c := range map[string]struct{ state, want string }{
		"ended by dispose":        {`{"status":"completed","output":"(no output)\n\n<shell_metadata>\nUser aborted the command\n</shell_metadata>","metadata":{"output":"","exit":null,"truncated":false}}`, "running"},
		"the user's, aborted":     {`{"status":"completed","output":"x\n\n<metadata>\nUser aborted the command\n</metadata>","metadata":{"output":"x"}}`, "running"},
		"killed by dispose":       {`{"status":"error","error":"Tool execution aborted","metadata":{"interrupted":true}}`, "running"},
		"completed":               {`{"status":"completed","output":"ok","metadata":{"exit":0}}`, "completed"},
		"prints the words":        {`{"status":"completed","output":"User aborted the command","metadata":{"exit":1}}`, "completed"},
		"timed out":               {`{"status":"completed","output":"x\n\n<shell_metadata>\nshell tool terminated command\n</shell_metadata>","metadata":{"exit":null}}`, "completed"},
		"another tool, completed": {`{"status":"completed","output":"written","metadata":{}}`, "completed"},
		"failed":                  {`{"status":"error","error":"x","metadata":{"interrupted":false}}`, "error"},
		"no metadata":             {`{"status":"error","error":"x"}`, "error"},
	} {
		s.session(name, "")
		s.messageV1(name, "msg_"+name, 1, `{"role":"assistant"}`, `{"type":"tool","tool":"bash","state":`+c.state+`}`)
		if got := describeOne(t, s.open(V1), name).LastTool; got == nil || got.Status != c.want {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "",
		" one ":              "one",
		"\n one\n \r\n":      "one",
		"one\r\n\r\n two \n": "one …",
	} {
		if got := firstLine(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestDescribeSurvivesBrokenRows(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly)
	s.session("ses_1", "")
	s.message("ses_1", "msg_1", "user", `{"text":"a"`, 1)
	s.message("ses_1", "msg_2", "assistant", `{"content":[{"type":"tool"`, 2)
	if desc := describeOne(t, s.open(V2), "ses_1"); desc.Title == "" || desc.LastTool != nil {
		t.Errorf("%+v", desc)
	}
	v1 := newServer(t, KindV1)
	v1.session("ses_1", "model = 'x'")
	v1.messageV1("ses_1", "msg_1", 1, `{`, `{`)
	if desc := describeOne(t, v1.open(V1), "ses_1"); desc.Title == "" {
		t.Errorf("%+v", desc)
	}
}

// Megabytes of input and thousands of messages are cut where they lie.
func TestDescribeOfHugeSessionsIsBounded(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{KindV1, KindEarly} {
		s := newServer(t, kind)
		s.session("ses_1", "title = printf('%.*c', 1000000, 't')")
		fill := `INSERT INTO session_message SELECT 'm' || x, 'ses_1', 'assistant', x, x, x, '{"content":[{"type":"text","text":"…"}]}' FROM n`
		gen := V2
		if kind == KindV1 {
			fill = `INSERT INTO message SELECT 'm' || x, 'ses_1', x, x, '{"role":"assistant","time":{"created":1}}' FROM n`
			gen = V1
		}
		s.exec(`WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3000) ` + fill)
		huge := `json_object('type', 'tool', 'name', 'write', 'tool', 'write', 'state', json_object('status', 'running', 'input', json_object('content', printf('%.*c', 1000000, 'x'))))`
		if kind == KindV1 {
			s.messageV1("ses_1", "msg_last", 200000, `{"role":"assistant","time":{"created":1}}`)
			s.exec(`INSERT INTO part SELECT 'prt_1', 'msg_last', 'ses_1', 1, 1, ` + huge)
		} else {
			s.exec(`INSERT INTO session_message SELECT 'msg_last', 'ses_1', 'assistant', 200000, 1, 1, json_object('content', json_array(` + huge + `))`)
		}
		d := s.open(gen)
		start := time.Now()
		desc := describeOne(t, d, "ses_1")
		t.Logf("%s: %v", kind, time.Since(start))
		if len(desc.Title) != maxText || desc.LastTool == nil || len(desc.LastTool.Input) != maxText || !strings.HasPrefix(desc.LastTool.Input, `{"content":"xxx`) {
			t.Errorf("%s: title of %d, tool %+v", kind, len(desc.Title), desc.LastTool)
		}
	}
}

// 1,000 sessions with a history of 40 messages each, as they are described after a park.
func BenchmarkDescribe1000(b *testing.B) {
	const n = 1000
	s, d := fill(b, n)
	s.exec(`INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)
		WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 40)
		SELECT id || '/' || x, id, iif(x % 10 = 1, 'user', 'assistant'), x, x, x, iif(x % 10 = 1, '{"text":"please do"}',
			'{"content":[{"type":"text","text":"ok"},{"type":"tool","id":"c","name":"shell","state":{"status":"running","input":{"command":"make"}}}]}')
		FROM session_v2, n`)
	s.exec(`INSERT INTO event_sequence SELECT id, 0, NULL FROM session_v2`)
	s.exec(`INSERT INTO event SELECT id, id, 0, 1, 'session.execution.started.1', '{}' FROM session_v2`)
	var ids []string
	err := d.read(b.Context(), func(q querier, _ shape) (err error) {
		ids, err = texts(b.Context(), q, `SELECT id FROM session_v2`)
		return err
	})
	if err != nil || len(ids) != n {
		b.Fatal(len(ids), err)
	}
	b.Run("Describe", func(b *testing.B) {
		for b.Loop() {
			if all, err := d.Describe(b.Context(), ids); err != nil || len(all) != n || all[ids[7]].LastTool == nil {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("Fates", func(b *testing.B) {
		for b.Loop() {
			if all, err := d.Fates(b.Context(), ids); err != nil || len(all) != n {
				b.Fatal(len(all), err)
			}
		}
	})
}

func TestName(t *testing.T) {
	t.Parallel()
	wrote := &restart.Prompt{Text: "fix the login"}
	for _, tt := range []struct {
		title string
		last  *restart.Prompt
		want  string
	}{
		{"Login repair", wrote, "Login repair"},
		{"New session - 2026-11-30T20:28:03.742Z", wrote, "fix the login"},
		{"Child session - 2026-11-30T20:28:03.742Z", wrote, "fix the login"},
		{"New session - 2026-11-30T20:28:03.742Z", &restart.Prompt{}, "New session - 2026-11-30T20:28:03.742Z"},
		{"New session - 2026-11-30T20:28:03.742Z", nil, "New session - 2026-11-30T20:28:03.742Z"},
		{"New session - of parliament", wrote, "New session - of parliament"},
		{"", wrote, ""},
	} {
		if got := name(tt.title, tt.last); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.title, got, tt.want)
		}
	}
}
