package opencode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

const goneBodyV1 = `{"name":"NotFoundError","data":{"message":"Session not found: ses_1"}}` // 1.18.33

func TestDeliverV1(t *testing.T) {
	t.Parallel()
	const call = "POST /session/ses_1/prompt_async?directory=%2Fa+b%26c"
	d := restart.Delivery{Session: "ses_1", Directory: "/a b&c", Suspended: 7, Agent: "plan", Model: `{"providerID":"p","modelID":"m"}`}
	s := &script{answers: map[string]func(http.ResponseWriter){call: noContent}}
	c := connectTo(t, V1, s)
	c.Text = "go on"
	if err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"messageID": Key(d), "agent": "plan", "model": map[string]any{"providerID": "p", "modelID": "m"},
		"parts": []any{map[string]any{"id": PartKey(d), "type": "text", "text": "go on"}},
	}
	if diff := cmp.Diff(want, s.body(call)); diff != "" {
		t.Error(diff)
	}
	d.Agent, d.Model, d.Text = "", "", "a job was lost"
	if err := c.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	delete(want, "agent")
	delete(want, "model")
	want["parts"].([]any)[0].(map[string]any)["text"] = "a job was lost"
	if diff := cmp.Diff(want, s.body(call)); diff != "" {
		t.Error(diff)
	}
	d.Model = `{"half`
	wantVerdict(t, c.Deliver(t.Context(), d), "refused")
}

func TestDeliverV1Verdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   string
	}{
		"accepted":     {noContent, "accepted"},
		"no session":   {says(404, goneBodyV1), "gone"},
		"no such call": {func(w http.ResponseWriter) { sayPage(w) }, "refused"},
		"missing":      {says(404, `{}`), "refused"},
		"bad request":  {says(400, `{"name":"BadRequest"}`), "refused"},
		"failed":       {says(500, `{"name":"UnknownError"}`), "open"},
		"broken":       {hangUp, "open"},
	} {
		s := &script{answers: map[string]func(http.ResponseWriter){"POST /session/ses_1/prompt_async?directory=%2Fd": c.answer}}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantVerdict(t, connectTo(t, V1, s).Deliver(t.Context(), plain), c.want)
		})
	}
}

func TestLookupV1(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   restart.Arrival
		fails  bool
	}{
		"there":     {says(200, `{"info":{},"parts":[]}`), restart.Arrived, false},
		"not there": {says(404, goneBodyV1), restart.NotArrived, false},
		"a page":    {func(w http.ResponseWriter) { sayPage(w) }, restart.ArrivalUnknown, true},
		"failed":    {says(500, `{}`), restart.ArrivalUnknown, true},
		"broken":    {hangUp, restart.ArrivalUnknown, true},
	} {
		s := &script{answers: map[string]func(http.ResponseWriter){"GET /session/ses_1/message/" + Key(plain) + "?directory=%2Fd": c.answer}}
		arrival, err := connectTo(t, V1, s).Lookup(t.Context(), plain)
		if arrival != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %v, %v", name, arrival, err)
		}
	}
}

func TestActiveV1(t *testing.T) {
	t.Parallel()
	s := &script{answers: map[string]func(http.ResponseWriter){
		"GET /session/status?directory=%2Fa":      says(200, `{"ses_2":{"type":"busy"},"ses_1":{"type":"retry","attempt":1},"ses_3":{"type":"idle"}}`),
		"GET /session/status?directory=%2Fb":      says(200, `{"ses_4":{"type":"busy"}}`),
		"GET /session/status?directory=%2Fbroken": says(400, `{"name":"ConfigJsonError","data":{}}`),
		"GET /session/status?directory=%2Ffile":   says(500, `{"name":"UnknownError","data":{}}`),
		"GET /session/status?directory=%2Flocked": says(401, ``),
		"GET /session/status?directory=%2Fcut":    hangUp,
		"GET /session/status?directory=%2Fpage":   func(w http.ResponseWriter) { sayPage(w) },
	}}
	for n := range 20 {
		s.answers[fmt.Sprintf("GET /session/status?directory=%%2Fmany%d", n)] = says(200, fmt.Sprintf(`{"ses_many%02d":{"type":"busy"}}`, n))
	}
	for name, c := range map[string]struct {
		dirs  []string
		want  []string
		fails bool
	}{
		"no directory":      {nil, nil, false},
		"two":               {[]string{"/a", "/b", "/a", "", "global"}, []string{"ses_1", "ses_2", "ses_4"}, false},
		"unreadable":        {[]string{"/broken", "/file", "/b"}, []string{"ses_4"}, false},
		"one with no call":  {[]string{"/page", "/b"}, []string{"ses_4"}, true},
		"not allowed":       {[]string{"/locked", "/b"}, []string{"ses_4"}, true},
		"cut off":           {[]string{"/cut", "/b"}, []string{"ses_4"}, true},
		"one that is a 404": {[]string{"/nowhere"}, nil, true},
	} {
		client := connectTo(t, V1, s)
		client.Watch(c.dirs...)
		got, err := client.Active(t.Context())
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	client := connectTo(t, V1, s)
	for n := range 20 {
		client.Watch(fmt.Sprintf("/many%d", n))
	}
	if got, err := client.Active(t.Context()); len(got) != 20 || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// A directory that can't be loaded is asked once; one in which a session is at work stays.
func TestActiveV1LeavesOutWhatIsNotLoaded(t *testing.T) {
	t.Parallel()
	const ask = "GET /session/status?directory=%2Fbad"
	s := &script{answers: map[string]func(http.ResponseWriter){
		"GET /session/status?directory=%2Fb": says(200, `{"ses_4":{"type":"busy"}}`),
		ask:                                  says(400, `{"name":"ConfigJsonError"}`),
		"POST /session/ses_1/prompt_async?directory=%2Fbad": says(400, `{"name":"ConfigJsonError"}`),
	}}
	client := connectTo(t, V1, s)
	client.Watch("/b")
	api := client.api.(*v1)
	active := func(asked int, partial ...string) {
		t.Helper()
		got, err := client.Active(t.Context())
		var e *PartialError
		if errors.As(err, &e) {
			if diff := cmp.Diff(partial, e.Directories); diff != "" || !strings.Contains(err.Error(), "ConfigJsonError") {
				t.Errorf("%v %s", err, diff)
			}
		} else if err != nil || len(partial) > 0 {
			t.Errorf("got %v, want it of %q only", err, partial)
		}
		if diff := cmp.Diff([]string{"ses_4"}, got); diff != "" {
			t.Error(diff)
		}
		if n := s.times(ask); n != asked {
			t.Errorf("asked %d times, want %d", n, asked)
		}
	}
	status := `{"directory":"/bad","payload":{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"%s"}}}}`
	wantVerdict(t, client.Deliver(t.Context(), restart.Delivery{Session: "ses_1", Directory: "/bad"}), "refused")
	active(0)
	client.Watch("/bad")
	active(1)
	active(1)
	api.decode(fmt.Appendf(nil, status, "busy"), discard)
	active(2, "/bad")
	active(3, "/bad")
	api.connected(t.Context())
	var told []string
	api.decode(fmt.Appendf(nil, status, "busy"), func(e restart.Event) { told = append(told, string(e.Kind)) })
	if diff := cmp.Diff([]string{"started"}, told); diff != "" { // it may be another turn
		t.Error(diff)
	}
	api.decode(fmt.Appendf(nil, status, "idle"), discard)
	active(5)
	active(5)
}

// A directory that waits for the network while it is loaded doesn't answer; a server that is stuck answers nothing.
func TestActiveV1OfWhatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ well bool }{"a directory": {true}, "the server": {false}} {
		synctest.Test(t, func(t *testing.T) {
			api := newV1(newWire(Incarnation{Generation: V1, URL: "http://127.0.0.1:1"}))
			api.wire.http.Transport = stuck{}
			api.well = func(context.Context) bool { return c.well }
			api.watch([]string{"/slow"})
			start := time.Now()
			got, err := api.active(t.Context())
			if len(got) > 0 || (err == nil) != c.well || time.Since(start) != callTimeout {
				t.Errorf("%s: got %v, %v after %s", name, got, err, time.Since(start))
			}
			if _, watched := api.dirs["/slow"]; watched == c.well {
				t.Errorf("%s: watched is %v", name, watched)
			}
		})
	}
}

// stuck is a server that accepts requests and answers none.
type stuck struct{}

func (stuck) RoundTrip(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestCallsV1(t *testing.T) {
	t.Parallel()
	s := &script{answers: map[string]func(http.ResponseWriter){
		"POST /global/dispose":                      says(200, `true`),
		"GET /session/ses_1":                        says(200, `{"id":"ses_1","title":"T","directory":"/d","time":{"created":1,"updated":2}}`),
		"GET /session/ses_2":                        says(404, goneBodyV1),
		"GET /session/ses_3":                        says(200, `{"id":"ses_3","directory":"/d"}`),
		"GET /session/ses_4":                        says(200, `{"id":"ses_4","directory":"/fails"}`),
		"GET /session/status?directory=%2Fd":        says(200, `{"ses_1":{"type":"retry"},"ses_3":{"type":"idle"}}`),
		"GET /session/status?directory=%2Ffails":    says(500, `{}`),
		"POST /session/ses_1/abort?directory=%2Fd":  says(200, `true`),
		"GET /permission?directory=%2Fd":            says(200, `[{"id":"p","sessionID":"ses_other"}]`),
		"GET /question?directory=%2Fd":              says(200, `[{"id":"q","sessionID":"ses_1"}]`),
		"GET /permission?directory=%2Fe":            says(200, `[{"id":"p","sessionID":"ses_other"},{"id":"p","sessionID":"ses_1"}]`),
		"GET /permission?directory=%2Ff":            says(200, `[]`),
		"GET /question?directory=%2Ff":              says(200, `[]`),
		"GET /permission?directory=%2Ffails":        says(500, `{}`),
		"POST /session/ses_fails/abort?directory=x": says(500, `{}`),
	}}
	c, ctx := connectTo(t, V1, s), t.Context()
	if err := c.Quiesce(ctx); err != nil || !s.did("POST /global/dispose") {
		t.Errorf("quiesce: %v", err)
	}
	if accepted, err := c.Stop(ctx); accepted || err != nil {
		t.Errorf("stop: %v, %v", accepted, err)
	}
	for session, want := range map[string]error{"ses_1": nil, "ses_2": ErrIdle, "ses_3": ErrIdle} {
		if err := c.Interrupt(ctx, session); !errors.Is(err, want) {
			t.Errorf("interrupt of %s: %v, want %v", session, err, want)
		}
	}
	if err := c.Interrupt(ctx, "ses_4"); err == nil || errors.Is(err, ErrIdle) {
		t.Errorf("interrupt of who isn't known to be idle: %v", err)
	}
	if !s.did("POST /session/ses_1/abort?directory=%2Fd") {
		t.Error("not interrupted")
	}
	got, err := c.Session(ctx, "ses_1")
	if diff := cmp.Diff(&Session{ID: "ses_1", Title: "T", Directory: "/d"}, got); diff != "" || err != nil {
		t.Errorf("session: %v %s", err, diff)
	}
	for dir, want := range map[string]string{"/d": "question", "/e": "permission", "/f": ""} {
		if got, err := c.Waiting(ctx, "ses_1", dir); got != want || err != nil {
			t.Errorf("in %s it waits for %q (%v), want %q", dir, got, err, want)
		}
	}
	if got, err := c.Waiting(ctx, "ses_1", "/fails"); err == nil {
		t.Errorf("a server that fails: waits for %q", got)
	}
	s.answers["POST /global/dispose"] = func(w http.ResponseWriter) { sayPage(w) }
	if err := c.Quiesce(ctx); err == nil || !strings.Contains(err.Error(), "no such call") {
		t.Errorf("a page: %v", err)
	}
}
