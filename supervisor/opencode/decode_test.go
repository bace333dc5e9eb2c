package opencode

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

func discard(restart.Event) {}

// told writes an event as "kind session".
func told(e restart.Event) string {
	text := fmt.Sprintf("%s %s", e.Kind, e.Session)
	if e.Err != "" {
		text += ": " + e.Err
	}
	return text
}

// replay gives what a recording tells, without progress.
func replay(t *testing.T, api api, file string) (events []restart.Event, progress int) {
	t.Helper()
	stream, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	err = readFrames(stream, func() {}, func(data []byte) {
		api.decode(data, func(e restart.Event) {
			if e.Kind == restart.EventProgress {
				progress++
				return
			}
			events = append(events, e)
		})
	})
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return events, progress
}

func TestReplayV2(t *testing.T) {
	t.Parallel()
	events, progress := replay(t, &v2{}, "v2-turns.txt")
	const session = "ses_dd32f2626ffeTcpuq68SUXDbf4"
	want := []restart.Event{
		{Kind: restart.EventStarted, Session: session, At: 1796048215001},
		{Kind: restart.EventSucceeded, Session: session, At: 1796048216134},
		{Kind: restart.EventStarted, Session: session, At: 1796048216198},
		{Kind: restart.EventInterrupted, Session: session, At: 1796048219236},
		{Kind: restart.EventStarted, Session: session, At: 1796048219568},
		{
			Kind: restart.EventFailed, Session: session, At: 1796048219892,
			Err: `Provider request failed with HTTP 400: {"error":{"message":"stub error","type":"stub"}}`,
		},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
	if progress == 0 {
		t.Error("no progress was told")
	}
}

func TestReplayV1(t *testing.T) {
	t.Parallel()
	api := newV1(nil)
	events, progress := replay(t, api, "v1-turns.txt")
	const session = "ses_dd28f7c53ffe6zEJc3uzRIBk50"
	var got []string
	for _, e := range events {
		if e.Session != session || e.Directory != "/home/user/projA" || e.At != 0 {
			t.Errorf("got %+v", e)
		}
		what := string(e.Kind)
		if e.Err != "" {
			what += ": " + e.Err[:11]
		}
		got = append(got, what)
	}
	want := []string{
		"started", "succeeded", // a turn
		"started", "succeeded", // one delivered twice
		"started", "succeeded", // the same id once more: busy for 5 ms, and nothing done
		"started", "interrupted", // aborted
		"started", "failed: Bad Request",
		"started", "interrupted", // by POST /global/dispose
		"archived", "deleted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if progress == 0 {
		t.Error("no progress was told")
	}
	if len(api.busy)+len(api.failed)+len(api.why) != 0 {
		t.Errorf("something is kept of a deleted session: %v %v %v", api.busy, api.failed, api.why)
	}
}

func TestReplayV1CutOff(t *testing.T) {
	t.Parallel()
	api := newV1(nil)
	events, _ := replay(t, api, "v1-cut.txt")
	var got []string
	for _, e := range events {
		got = append(got, told(e)+" "+e.Directory)
	}
	want := []string{
		"started ses_dd3313aabffeqHTQcamDGaBvC3 /home/user/projA",
		"started ses_dd33133c8ffea2prlWgSFMQyj0 /home/user/projB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]struct{}{"/home/user/projA": {}, "/home/user/projB": {}}, api.dirs); diff != "" {
		t.Error("directories seen: " + diff)
	}
}

func TestDecodeV2(t *testing.T) {
	t.Parallel()
	for frame, want := range map[string]string{
		`{"type":"session.execution.interrupted","data":{"sessionID":"s","reason":"shutdown"}}`:             "shutdown s",
		`{"type":"session.execution.interrupted","data":{"sessionID":"s","reason":"superseded"}}`:           "interrupted s",
		`{"type":"session.execution.interrupted","data":{"sessionID":"s","reason":"something new"}}`:        "shutdown s",
		`{"type":"session.execution.failed","data":{"sessionID":"s","error":{"type":"t"}}}`:                 "failed s: t",
		`{"type":"session.execution.failed","data":{"sessionID":"s","error":"text"}}`:                       "failed s",
		`{"type":"session.deleted","data":{"sessionID":"s"}}`:                                               "deleted s",
		`{"type":"session.removed","data":{"sessionID":"s"}}`:                                               "deleted s",
		`{"type":"session.updated","data":{"sessionID":"s","info":{"time":{"archived":1796048077536.5}}}}`:  "archived s",
		`{"type":"session.updated","data":{"sessionID":"s","info":{"time":{"created":1}}}}`:                 "",
		`{"type":"session.updated","data":{"sessionID":"s","info":{"time":{"created":1,"archived":null}}}}`: "",
		`{"type":"session.tool.called","data":{"sessionID":"s"}}`:                                           "progress s",
		`{"type":"session.renamed","data":{"sessionID":"s","title":"t"}}`:                                   "",
		`{"type":"session.execution.started","data":{}}`:                                                    "",
		`{"type":"session.execution.started","data":{"sessionID":7}}`:                                       "",
		`{"type":"server.connected","data":{}}`:                                                             "",
		`[{"_tag":"Die"}]`:                                                                                  "",
		`{"type":`:                                                                                          "",
	} {
		got := ""
		(&v2{}).decode([]byte(frame), func(e restart.Event) { got = told(e) })
		if got != want {
			t.Errorf("%s: got %q, want %q", frame, got, want)
		}
	}
}

func TestDecodeV1(t *testing.T) {
	t.Parallel()
	status := func(s string) string {
		return `{"directory":"/d","payload":{"type":"session.status","properties":{"sessionID":"s","status":{"type":"` + s + `"}}}}`
	}
	failure := `{"directory":"/d","payload":{"type":"session.error","properties":{"sessionID":"s","error":{"name":"APIError","data":{}}}}}`
	for name, c := range map[string]struct {
		frames []string
		want   []string
	}{
		"retry is at work":           {[]string{status("retry"), status("busy"), status("idle")}, []string{"started s", "succeeded s"}},
		"idle twice":                 {[]string{status("busy"), status("idle"), status("idle")}, []string{"started s", "succeeded s"}},
		"idle of an unknown":         {[]string{status("idle"), status("idle")}, []string{"succeeded s"}},
		"an error without a message": {[]string{status("busy"), failure, status("idle")}, []string{"started s", "failed s: APIError"}},
		"an error that was overcome": {[]string{status("busy"), failure, status("busy"), status("idle")}, []string{"started s", "succeeded s"}},
		"an error of no session":     {[]string{status("busy"), strings.Replace(failure, `"sessionID":"s",`, "", 1), status("idle")}, []string{"started s", "succeeded s"}},
		"sync":                       {[]string{`{"directory":"/d","payload":{"type":"sync","properties":{"sessionID":"s"}}}`}, nil},
		"progress before the turn":   {[]string{`{"payload":{"type":"message.part.updated","properties":{"part":{"sessionID":"s"}}}}`}, nil},
		"progress":                   {[]string{status("busy"), `{"payload":{"type":"message.part.delta","properties":{"sessionID":"s"}}}`}, []string{"started s", "progress s"}},
		"nonsense":                   {[]string{`{`, `7`, `{"payload":[]}`, ``}, nil},
	} {
		var got []string
		api := newV1(nil)
		for _, frame := range c.frames {
			api.decode([]byte(frame), func(e restart.Event) { got = append(got, told(e)) })
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDecodeV1AfterQuiesce(t *testing.T) {
	t.Parallel()
	status := `{"directory":"/d","payload":{"type":"session.status","properties":{"sessionID":"s","status":{"type":"%s"}}}}`
	for name, c := range map[string]struct {
		answer int
		want   []string
	}{
		"accepted": {http.StatusOK, []string{"started s", "interrupted s", "started s", "succeeded s"}},
		"refused":  {http.StatusBadRequest, []string{"started s", "succeeded s", "started s", "succeeded s"}},
	} {
		api := newV1(newWire(serve(t, V1, func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, c.answer, "true") })))
		var got []string
		emit := func(e restart.Event) { got = append(got, told(e)) }
		api.decode(fmt.Appendf(nil, status, "busy"), emit)
		if err := api.quiesce(t.Context()); (err == nil) != (c.answer == http.StatusOK) {
			t.Errorf("%s: %v", name, err)
		}
		api.decode(fmt.Appendf(nil, status, "idle"), emit)
		api.unquiesce()
		api.decode(fmt.Appendf(nil, status, "busy"), emit)
		api.decode(fmt.Appendf(nil, status, "idle"), emit)
		api.wire.close()
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCoalesce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		count := map[string]int{}
		emit := coalesce(func(e restart.Event) { count[told(e)]++ })
		for range 100 {
			emit(restart.Event{Kind: restart.EventProgress, Session: "a"})
			emit(restart.Event{Kind: restart.EventProgress, Session: "b"})
			time.Sleep(99 * time.Millisecond)
		}
		emit(restart.Event{Kind: restart.EventSucceeded, Session: "a"})
		emit(restart.Event{Kind: restart.EventSucceeded, Session: "a"})
		want := map[string]int{"progress a": 10, "progress b": 10, "succeeded a": 2} // 9.9 s
		for what := range want {
			if d := count[what] - want[what]; d < -1 || d > 0 {
				t.Errorf("%s: told %d times, want %d", what, count[what], want[what])
			}
		}
	})
}

// The types are those of the recorded OpenAPI documents of both generations.
func TestWhatIsAskedIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		api   api
		frame string
	}{
		{&v2{}, `{"type":"permission.v2.asked","data":{"sessionID":"ses_1"}}`},
		{&v2{}, `{"type":"question.v2.replied","data":{"sessionID":"ses_1"}}`},
		{&v2{}, `{"type":"form.created","data":{"form":{"id":"frm_1","sessionID":"ses_1"}}}`},
		{newV1(nil), `{"directory":"/d","payload":{"type":"permission.asked","properties":{"sessionID":"ses_1"}}}`},
		{newV1(nil), `{"directory":"/d","payload":{"type":"question.rejected","properties":{"sessionID":"ses_1"}}}`},
	} {
		var got []string
		c.api.decode([]byte(c.frame), func(e restart.Event) { got = append(got, told(e)) })
		if !cmp.Equal(got, []string{"asked ses_1"}) {
			t.Errorf("%s: %q", c.frame, got)
		}
	}
}
