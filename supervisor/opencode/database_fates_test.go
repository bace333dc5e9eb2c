package opencode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

func TestFatesOfV2(t *testing.T) {
	t.Parallel()
	const started, promoted = "session.execution.started.1", "session.input.promoted.1"
	type event struct{ kind, data string }
	servers := map[string]*server{KindEarly: newServer(t, KindEarly), KindClaims: newServer(t, KindClaims)}
	databases := map[string]*Database{KindEarly: servers[KindEarly].open(V2), KindClaims: servers[KindClaims].open(V2)}
	for _, c := range []struct {
		name   string
		events []event
		more   string // columns of the session
		early  restart.Outcome
		claims restart.Outcome
	}{
		{"never executed", nil, "", restart.OutcomeUnknown, restart.OutcomeUnknown},
		{"only other events", []event{{promoted, `{}`}}, "", restart.OutcomeUnknown, restart.OutcomeUnknown},
		{"running", []event{{started, `{}`}, {"session.text.ended.1", `{}`}}, "", restart.OutcomeInFlight, restart.OutcomeInFlight},
		{"running again", []event{{started, `{}`}, {"session.execution.succeeded.1", `{}`}, {started, `{}`}}, "", restart.OutcomeInFlight, restart.OutcomeInFlight},
		{"succeeded", []event{{started, `{}`}, {"session.execution.succeeded.1", `{}`}, {promoted, `{}`}}, "", restart.OutcomeEnded, restart.OutcomeEnded},
		{"failed", []event{{started, `{}`}, {"session.execution.failed.2", `{"error":{}}`}}, "", restart.OutcomeEnded, restart.OutcomeEnded},
		{"stopped by its user", []event{{started, `{}`}, {"session.execution.interrupted.1", `{"reason":"user"}`}}, "", restart.OutcomeEnded, restart.OutcomeEnded},
		{"superseded", []event{{started, `{}`}, {"session.execution.interrupted.1", `{"reason":"superseded"}`}}, "", restart.OutcomeEnded, restart.OutcomeEnded},
		{"shut down", []event{{started, `{}`}, {"session.execution.interrupted.1", `{"reason":"shutdown"}`}}, "", restart.OutcomeSuspended, restart.OutcomeSuspended},
		{"no version in the type", []event{{"session.execution.started", `{}`}}, "", restart.OutcomeInFlight, restart.OutcomeInFlight},
		{"a reason of tomorrow", []event{{started, `{}`}, {"session.execution.interrupted.1", `{"reason":"eclipse"}`}}, "", restart.OutcomeUnknown, restart.OutcomeUnknown},
		{"an event of tomorrow", []event{{started, `{}`}, {"session.execution.paused.1", `{}`}}, "", restart.OutcomeUnknown, restart.OutcomeUnknown},
		{"broken data", []event{{started, `{}`}, {"session.execution.interrupted.1", `{"reason":`}}, "", restart.OutcomeUnknown, restart.OutcomeUnknown},
		{"marked by the server", []event{{started, `{}`}, {"session.execution.failed.1", `{}`}}, "time_suspended = 5", restart.OutcomeSuspended, restart.OutcomeEnded},
		{"marked, no events", nil, "time_suspended = 5", restart.OutcomeSuspended, restart.OutcomeInFlight},
		{"archived", []event{{started, `{}`}}, "time_archived = 5, time_suspended = 5", restart.OutcomeArchived, restart.OutcomeArchived},
	} {
		for kind, want := range map[string]restart.Outcome{KindEarly: c.early, KindClaims: c.claims} {
			s := servers[kind]
			s.session(c.name, c.more)
			s.session("other than "+c.name, "") // its events count only for itself
			s.event("other than "+c.name, started, `{}`, 1)
			for _, e := range c.events {
				s.event(c.name, e.kind, e.data, 1)
			}
			s.event("other than "+c.name, "session.execution.succeeded.1", `{}`, 2)
			fates, err := databases[kind].Fates(t.Context(), []string{c.name, "ses_gone", c.name})
			if err != nil || len(fates) != 2 || fates[c.name].Outcome != want || fates["ses_gone"].Outcome != restart.OutcomeGone {
				t.Errorf("%s, %s: %v, %v, want outcome %d", c.name, kind, fates, err, want)
			}
		}
	}
}

// The mark moves when the session executes or is written to, and only then.
func TestMarkOfV2(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.session("ses_1", "")
	s.event("ses_1", "session.execution.started.1", `{}`, 1000)
	s.message("ses_1", "msg_1", "user", `{"text":"a"}`, 1000)
	d := s.open(V2)
	mark := func() string {
		t.Helper()
		fates, err := d.Fates(t.Context(), []string{"ses_1"})
		if err != nil {
			t.Fatal(err)
		}
		return fates["ses_1"].Mark
	}
	for _, c := range []struct {
		what  string
		do    func()
		moves bool
	}{
		{"an answer", func() { s.message("ses_1", "msg_2", "assistant", `{}`, 1001) }, false},
		{"teardown", func() { s.event("ses_1", "session.execution.interrupted.1", `{"reason":"shutdown"}`, 1002) }, false},
		{"our parking", func() { s.exec(`UPDATE session_v2 SET time_suspended = NULL, time_updated = 99`) }, false},
		{"another title", func() { s.exec(`UPDATE session_v2 SET title = 'b'`) }, false},
		{"a prompt, clock set back", func() { s.message("ses_1", "msg_0", "user", `{"text":"b"}`, 1) }, true},
		{"an execution, clock set back", func() { s.event("ses_1", "session.execution.started.1", `{}`, 1) }, true},
		{"a synthetic message", func() { s.message("ses_1", "msg_3", "synthetic", `{"text":"c"}`, 1) }, true},
	} {
		before := mark()
		c.do()
		if after := mark(); (after != before) != c.moves {
			t.Errorf("%s: %s, then %s", c.what, before, after)
		}
	}
}

func TestFatesOfV1(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindV1)
	d := s.open(V1)
	const user, tools = `{"role":"user"}`, `{"role":"assistant","time":{"created":1,"completed":2},"finish":"tool-calls"}`
	for _, c := range []struct {
		name     string
		messages []string
		more     string
		want     restart.Outcome
	}{
		{"empty", nil, "", restart.OutcomeUnknown},
		{"killed before the first step", []string{user}, "", restart.OutcomeInFlight},
		{"killed in a step", []string{user, `{"role":"assistant","time":{"created":1}}`}, "", restart.OutcomeInFlight},
		{"killed between steps", []string{user, tools}, "", restart.OutcomeInFlight},
		{"finished", []string{user, tools, `{"role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}`}, "", restart.OutcomeEnded},
		{"aborted or disposed", []string{user, `{"role":"assistant","time":{"created":1,"completed":2},"error":{"name":"MessageAbortedError"}}`}, "", restart.OutcomeSuspended},
		{"aborted, not completed", []string{user, `{"role":"assistant","time":{"created":1},"error":{"name":"MessageAbortedError"}}`}, "", restart.OutcomeSuspended},
		{"aborted during retry", []string{user, `{"role":"assistant","time":{"created":1,"completed":2}}`}, "", restart.OutcomeSuspended},
		{"failed", []string{user, `{"role":"assistant","time":{"created":1,"completed":2},"error":{"name":"APIError"}}`}, "", restart.OutcomeEnded},
		{"broken", []string{user, `{"role":`}, "", restart.OutcomeUnknown},
		{"archived", []string{user}, "time_archived = 1", restart.OutcomeArchived},
	} {
		s.session(c.name, c.more)
		for i, data := range c.messages {
			s.messageV1(c.name, fmt.Sprintf("%s %d", c.name, i), 100, data) // in one millisecond: the id decides
		}
		fates, err := d.Fates(t.Context(), []string{c.name, "ses_gone"})
		if err != nil || fates[c.name].Outcome != c.want || fates["ses_gone"].Outcome != restart.OutcomeGone {
			t.Errorf("%s: %v, %v, want outcome %d", c.name, fates, err, c.want)
		}
	}
}

func TestMarkOfV1(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindV1)
	s.session("ses_1", "")
	s.messageV1("ses_1", "msg_1", 1000, `{"role":"user"}`)
	s.messageV1("ses_1", "msg_2", 1001, `{"role":"assistant","time":{"created":1}}`)
	d := s.open(V1)
	mark := func() string {
		t.Helper()
		fates, err := d.Fates(t.Context(), []string{"ses_1"})
		if err != nil {
			t.Fatal(err)
		}
		return fates["ses_1"].Mark
	}
	before := mark()
	s.exec(`UPDATE message SET time_updated = 9, data = '{"role":"assistant","time":{"created":1,"completed":2},"error":{"name":"MessageAbortedError"}}' WHERE id = 'msg_2'`)
	if after := mark(); after != before {
		t.Errorf("teardown moved it from %s to %s", before, after)
	}
	s.messageV1("ses_1", "msg_3", 1, `{"role":"user"}`) // the clock was set back
	if after := mark(); after == before {
		t.Errorf("a prompt left it at %s", after)
	}
}

func TestBegan(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{KindEarly, KindClaims} {
		s := newServer(t, kind)
		s.session("ses_1", "")
		d := s.open(V2)
		want := func(want int64) {
			t.Helper()
			if got, err := d.Began(t.Context(), "ses_1"); err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", kind, got, err, want)
			}
		}
		want(0)
		s.event("ses_1", "session.execution.started.1", `{}`, 1000)
		s.event("ses_1", "session.execution.succeeded.1", `{}`, 1500)
		want(1000)
		s.event("ses_1", "session.execution.started.1", `{}`, 2000)
		s.event("ses_1", "session.text.ended.1", `{}`, 2500)
		want(2000)
	}
	if got, err := newServer(t, KindV1).open(V1).Began(t.Context(), "ses_1"); err != nil || got != 0 {
		t.Errorf("v1: %d, %v", got, err)
	}
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly)
	add := func(id, more string, created int64, after ...string) {
		s.session(id, more)
		s.event(id, "session.execution.started.1", `{}`, created)
		for _, kind := range after {
			s.event(id, kind, `{"reason":"shutdown"}`, created+1)
		}
	}
	add("ses_running", "", 1000)
	add("ses_shutdown", "", 1000, "session.execution.interrupted.1")
	add("ses_marked", "time_suspended = 1001", 1000, "session.execution.interrupted.1")
	add("ses_before", "", 999)
	add("ses_ended", "", 1000, "session.execution.succeeded.1")
	add("ses_archived", "time_archived = 5", 1000)
	add("ses_again", "", 10, "session.execution.succeeded.1")
	s.event("ses_again", "session.execution.started.1", `{}`, 2000)
	s.session("ses_idle", "")

	got, err := s.open(V2).InFlight(t.Context(), 1000)
	if diff := cmp.Diff([]string{"ses_again", "ses_marked", "ses_running", "ses_shutdown"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got, err := s.open(V1).InFlight(t.Context(), 0); err != nil || len(got) != 0 {
		t.Errorf("v1: %v, %v", got, err)
	}
}

// A long history costs searches of indexes, never a scan of messages or events,
// nor a walk back through all of a session's events.
func TestFatesSearchIndexes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  string
		gen   Generation
		query func(shape) string
		uses  string
	}{
		{KindV1, V1, func(shape) string { return fatesQueryV1() }, "message_session_time_created_id_idx"},
		{KindEarly, V2, fatesQueryV2, "event_aggregate_type_seq_idx"},
		{KindClaims, V2, fatesQueryV2, "session_message_session_type_seq_idx"},
		{KindEarly, V2, startedSince, "event_aggregate_type_seq_idx"},
		{KindClaims, V2, startedSince, "event_aggregate_type_seq_idx"},
		{KindClaims, V2, began, "event_aggregate_type_seq_idx"},
	} {
		d := newServer(t, c.kind).open(c.gen)
		var text string
		err := d.read(t.Context(), func(q querier, s shape) error {
			rows, err := q.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+c.query(s), "[]")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				text += detail + "\n"
			}
			return rows.Err()
		})
		if err != nil || !strings.Contains(text, c.uses) {
			t.Errorf("%s: %v, plan\n%s", c.kind, err, text)
		}
		for _, table := range []string{"SCAN e", "SCAN m", "SCAN n", "event_aggregate_seq_idx (aggregate_id=?)\n"} {
			if strings.Contains(text, table) {
				t.Errorf("%s: %s in plan\n%s", c.kind, table, text)
			}
		}
	}
}

func BenchmarkInFlight(b *testing.B) {
	s := newServer(b, KindClaims)
	s.session("ses_0", "")
	s.exec(`INSERT INTO session_v2 (id, project_id, slug, directory, title, version, time_created, time_updated)
		WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5000) SELECT 'ses_' || x, 'p', 's', '/', '', '2', 1, 2 FROM n`)
	s.exec(`INSERT INTO event_sequence SELECT id, 50, NULL FROM session_v2`)
	s.exec(`INSERT INTO event WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50)
		SELECT id || '/' || x, id, x, x, iif(x = 7, 'session.execution.started.1', 'session.text.ended.1'), '{}' FROM session_v2, n`)
	d := s.open(V2)
	for b.Loop() {
		if got, err := d.InFlight(b.Context(), 8); err != nil || len(got) != 0 {
			b.Fatal(got, err)
		}
	}
}
