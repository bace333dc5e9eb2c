package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

// script is a server that answers "METHOD path" as it is told, and keeps what it was sent.
type script struct {
	mu      sync.Mutex
	answers map[string]func(http.ResponseWriter)
	unknown func(http.ResponseWriter)
	calls   []string
	bodies  map[string]string
}

func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { sayJSON(w, status, body) }
}

func noContent(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) }

// hangUp takes the request and breaks the connection.
func hangUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := r.Method + " " + r.URL.RequestURI()
	s.mu.Lock()
	s.calls = append(s.calls, call)
	if s.bodies == nil {
		s.bodies = map[string]string{}
	}
	s.bodies[call] = string(body)
	answer, ok := s.answers[call]
	s.mu.Unlock()
	switch {
	case ok:
		answer(w)
	case s.unknown != nil:
		s.unknown(w)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// times tells how often a call was made.
func (s *script) times(call string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (s *script) did(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, call)
}

func (s *script) count(call string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (s *script) body(call string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body map[string]any
	_ = json.Unmarshal([]byte(s.bodies[call]), &body)
	return body
}

func connectTo(t *testing.T, generation Generation, s *script) *Client {
	t.Helper()
	c := Connect(serve(t, generation, s.ServeHTTP))
	c.patience = 20 * time.Millisecond
	t.Cleanup(c.Close)
	return c
}

func description(t *testing.T) func(http.ResponseWriter) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v2-openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	return says(200, string(text))
}

const (
	base      = "/api/session/ses_1"
	notFound  = `{"_tag":"SessionNotFoundError","sessionID":"ses_1","message":"no"}`
	noMessage = `{"_tag":"MessageNotFoundError","message":"no"}`
)

var (
	plain  = restart.Delivery{Session: "ses_1", Directory: "/d", Suspended: 1796058701234, Agent: "plan", Model: `{"providerID":"p"}`}
	spoken = restart.Delivery{Session: "ses_1", Directory: "/d", Suspended: 1796058701234, Text: "a job was lost"}
)

func TestDeliverV2PrefersWhatLeavesNoTrace(t *testing.T) {
	t.Parallel()
	without := strings.ReplaceAll(`{"paths":{"/api/session/{id}/synthetic":{"post":{"requestBody":{"content":{"application/json":{"schema":{"properties":{"text":{}}}}}}}}}}`, "\n", "")
	byName := `{"paths":{"/api/session/{id}/synthetic":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S"}}}}}}},"components":{"schemas":{"S":{"properties":{"id":{}}}}}}`
	for name, c := range map[string]struct {
		answers map[string]func(http.ResponseWriter)
		unknown func(http.ResponseWriter)
		d       restart.Delivery
		want    string
		text    string
	}{
		"resume": {
			answers: map[string]func(http.ResponseWriter){"POST " + base + "/resume": noContent}, d: plain, want: "resume",
		},
		"no resume, synthetic with an id": {
			answers: map[string]func(http.ResponseWriter){"GET /openapi.json": description(t), "POST " + base + "/synthetic": says(200, `{"data":{}}`)},
			d:       plain, want: "synthetic", text: ContinueText,
		},
		"described elsewhere, by a reference": {
			answers: map[string]func(http.ResponseWriter){"GET /doc": says(200, byName), "POST " + base + "/synthetic": says(200, `{"data":{}}`)},
			d:       plain, want: "synthetic", text: ContinueText,
		},
		"synthetic without an id": {
			answers: map[string]func(http.ResponseWriter){"GET /openapi.json": says(200, without), "POST " + base + "/prompt": says(200, `{"data":{}}`)},
			d:       plain, want: "prompt", text: ContinueText,
		},
		"nothing described": {
			answers: map[string]func(http.ResponseWriter){"POST " + base + "/prompt": says(200, `{"data":{}}`)}, d: plain, want: "prompt", text: ContinueText,
		},
		"unknown paths are pages": {
			answers: map[string]func(http.ResponseWriter){"POST " + base + "/prompt": says(200, `{"data":{}}`)}, unknown: sayPage, d: plain, want: "prompt", text: ContinueText,
		},
		"something to tell": {
			answers: map[string]func(http.ResponseWriter){
				"POST " + base + "/resume": noContent, "GET /openapi.json": description(t), "POST " + base + "/synthetic": says(200, `{"data":{}}`),
			},
			d: spoken, want: "synthetic", text: "a job was lost",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: c.answers, unknown: c.unknown}
			client := connectTo(t, V2, s)
			if err := client.Deliver(t.Context(), c.d); err != nil {
				t.Fatal(err)
			}
			var posts []string
			for _, call := range s.calls {
				if name, ok := strings.CutPrefix(call, "POST "+base+"/"); ok {
					posts = append(posts, name)
				}
			}
			if last := posts[len(posts)-1]; last != c.want {
				t.Errorf("used %v, want %s", posts, c.want)
			}
			if c.text == "" {
				return
			}
			want := map[string]any{"id": Key(c.d), "text": c.text} // and neither agent nor model nor permission
			if diff := cmp.Diff(want, s.body("POST "+base+"/"+c.want)); diff != "" {
				t.Error(diff)
			}
			if c.d.Text == "" { // again: what it doesn't have isn't tried again
				if err := client.Deliver(t.Context(), c.d); err != nil {
					t.Fatal(err)
				}
				if n := len(s.calls); n > len(posts)+4 {
					t.Errorf("asks again and again: %v", s.calls)
				}
			}
		})
	}
}

// wantVerdict checks an error of Deliver: accepted, refused, gone or open.
func wantVerdict(t *testing.T, err error, want string) {
	t.Helper()
	got := "open"
	var refused *restart.RefusedError
	switch {
	case err == nil:
		got = "accepted"
	case errors.As(err, &refused) && refused.Gone:
		got = "gone"
	case errors.As(err, &refused):
		got = "refused"
	}
	if got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
	if err != nil && strings.Contains(err.Error(), testPassword) {
		t.Errorf("the password is in %q", err)
	}
}

func TestDeliverV2Verdicts(t *testing.T) {
	t.Parallel()
	redirect := func(w http.ResponseWriter) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		keyed  string
		resume string
	}{
		"accepted":           {says(200, `{"data":{}}`), "accepted", "accepted"},
		"no session":         {says(404, notFound), "gone", "gone"},
		"bad request":        {says(400, `{"_tag":"InvalidRequestError"}`), "refused", "refused"},
		"unauthorized":       {says(401, `{}`), "refused", "refused"},
		"the key is known":   {says(409, `{"_tag":"ConflictError","message":"m"}`), "accepted", "refused"},
		"the session is not": {says(409, `{"_tag":"SessionBusyError","message":"m"}`), "refused", "refused"},
		"redirect":           {redirect, "refused", "refused"},
		"failed":             {says(500, `{"_tag":"UnknownError"}`), "open", "open"},
		"unavailable":        {says(503, `{"_tag":"ServiceUnavailableError"}`), "open", "open"},
		"broken":             {hangUp, "open", "open"},
		"endless":            {says(200, strings.Repeat(" ", maxAnswer+1)), "open", "open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{answers: map[string]func(http.ResponseWriter){"POST " + base + "/resume": c.answer, "POST " + base + "/prompt": c.answer}}
			client := connectTo(t, V2, s)
			wantVerdict(t, client.Deliver(t.Context(), spoken), c.keyed)
			wantVerdict(t, client.Deliver(t.Context(), plain), c.resume)
			if s.count("POST "+base+"/prompt") != 1 {
				t.Errorf("a resume that was answered was followed by a prompt: %v", s.calls)
			}
			if s.did("POST /elsewhere") {
				t.Error("a redirection was followed")
			}
		})
	}
}

func TestDeliverToNobody(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	_ = l.Close()
	for _, generation := range []Generation{V1, V2} {
		c := Connect(Incarnation{Generation: generation, URL: url, Password: testPassword})
		wantVerdict(t, c.Deliver(t.Context(), plain), "refused")
		wantVerdict(t, c.Deliver(t.Context(), spoken), "refused")
		if arrival, err := c.Lookup(t.Context(), spoken); err == nil || arrival != restart.ArrivalUnknown {
			t.Errorf("%s: got %v, %v", generation, arrival, err)
		}
		if active, err := Connect(Incarnation{Generation: V2, URL: url}).Active(t.Context()); err == nil {
			t.Errorf("active: got %v", active)
		}
	}
}

func TestDeliverV2WaitsForTheExecution(t *testing.T) {
	t.Parallel()
	settle := make(chan struct{})
	s := &script{answers: map[string]func(http.ResponseWriter){
		"POST " + base + "/resume": func(w http.ResponseWriter) { <-settle; noContent(w) },
	}}
	c := connectTo(t, V2, s)
	done := make(chan error, 2)
	go func() { done <- c.Deliver(t.Context(), plain) }()
	poll(t, "the resume arrives", func() bool { return s.did("POST " + base + "/resume") })
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- c.Deliver(ctx, plain) }()
	poll(t, "a second arrives", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.calls) == 2 })
	cancel()
	wantVerdict(t, <-gone, "open")
	select {
	case err := <-done:
		t.Errorf("returned before the execution settled: %v", err)
	default:
	}
	close(settle)
	wantVerdict(t, <-done, "accepted")
}

func TestLookupV2(t *testing.T) {
	t.Parallel()
	message := "GET " + base + "/message/" + Key(plain)
	resume := `{"paths":{"/api/session/{sessionID}/resume":{"post":{}}}}`
	for name, c := range map[string]struct {
		answers map[string]func(http.ResponseWriter)
		d       restart.Delivery
		want    restart.Arrival
		fails   bool
	}{
		"there":                  {map[string]func(http.ResponseWriter){message: says(200, `{"data":{}}`)}, spoken, restart.Arrived, false},
		"waits to be taken up":   {map[string]func(http.ResponseWriter){"GET " + base + "/pending": says(200, `{"data":[{"id":"msg_x"},{"id":"`+Key(plain)+`"}]}`)}, spoken, restart.Arrived, false},
		"not there":              {map[string]func(http.ResponseWriter){message: says(404, noMessage)}, spoken, restart.NotArrived, false},
		"the session is gone":    {map[string]func(http.ResponseWriter){message: says(404, notFound)}, spoken, restart.NotArrived, false},
		"the server fails":       {map[string]func(http.ResponseWriter){message: says(500, `{}`)}, spoken, restart.ArrivalUnknown, true},
		"resume, executes":       {map[string]func(http.ResponseWriter){"GET /api/session/active": says(200, `{"data":{"ses_1":{"type":"running"}}}`)}, plain, restart.Arrived, false},
		"resume, does not":       {map[string]func(http.ResponseWriter){"GET /api/session/active": says(200, `{"data":{}}`)}, plain, restart.ArrivalUnknown, false},
		"resume, described":      {map[string]func(http.ResponseWriter){"GET /doc": says(200, resume), "GET /api/session/active": says(200, `{"data":{}}`)}, plain, restart.ArrivalUnknown, false},
		"there can't be any":     {map[string]func(http.ResponseWriter){"GET /openapi.json": description(t)}, plain, restart.NotArrived, false},
		"a message after all":    {map[string]func(http.ResponseWriter){message: says(200, `{"data":{}}`)}, plain, restart.Arrived, false},
		"resume, can't be asked": {map[string]func(http.ResponseWriter){"GET /api/session/active": says(500, `{}`)}, plain, restart.ArrivalUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrival, err := connectTo(t, V2, &script{answers: c.answers}).Lookup(t.Context(), c.d)
			if arrival != c.want || (err != nil) != c.fails {
				t.Errorf("got %v, %v, want %v", arrival, err, c.want)
			}
		})
	}
}

func TestLookupIsPatient(t *testing.T) {
	t.Parallel()
	message := "GET " + base + "/message/" + Key(spoken)
	var tries int
	s := &script{answers: map[string]func(http.ResponseWriter){message: func(w http.ResponseWriter) {
		if tries++; tries < 3 {
			sayJSON(w, 404, noMessage)
			return
		}
		sayJSON(w, 200, `{"data":{}}`)
	}}}
	c := connectTo(t, V2, s)
	c.patience = time.Second
	if arrival, err := c.Lookup(t.Context(), spoken); arrival != restart.Arrived || err != nil {
		t.Errorf("got %v, %v", arrival, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.answers[message] = func(w http.ResponseWriter) { cancel(); sayJSON(w, 404, noMessage) }
	if arrival, err := c.Lookup(ctx, spoken); arrival != restart.ArrivalUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, %v", arrival, err)
	}
}

func TestActiveV2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		want   []string
		fails  bool
	}{
		"some":       {says(200, `{"data":{"ses_b":{"type":"running"},"ses_a":{"type":"running"}}}`), []string{"ses_a", "ses_b"}, false},
		"none":       {says(200, `{"data":{}}`), []string{}, false},
		"other form": {says(200, `{}`), nil, true},
		"a list":     {says(200, `{"data":[]}`), nil, true},
		"a page":     {sayPage, nil, true},
		"missing":    {says(404, `{}`), nil, true},
		"nothing":    {noContent, nil, true},
		"broken":     {hangUp, nil, true},
	} {
		s := &script{answers: map[string]func(http.ResponseWriter){"GET /api/session/active": c.answer}}
		got, err := connectTo(t, V2, s).Active(t.Context())
		if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestCallsV2(t *testing.T) {
	t.Parallel()
	s := &script{answers: map[string]func(http.ResponseWriter){
		"POST /api/service/stop":               says(200, `{"accepted":true}`),
		"POST " + base + "/interrupt":          noContent,
		"POST /api/session/ses_2/interrupt":    says(200, `{"interrupted":false}`),
		"POST /api/session/ses_3/interrupt":    says(200, `{"interrupted":true}`),
		"POST /api/session/ses_4/interrupt":    says(404, notFound),
		"GET " + base:                          says(200, `{"data":{"id":"ses_1","parentID":"ses_0","title":"T","location":{"directory":"/d"},"time":{"created":1,"updated":2,"archived":3}}}`),
		"GET /api/session/ses_2":               says(404, notFound),
		"GET /api/session/ses_3":               says(500, `{}`),
		"GET /api/session/..%2Factive%2Fx%3Fy": says(404, notFound),
		"GET " + base + "/permission":          says(200, `{"data":[]}`),
		"GET " + base + "/form":                says(200, `{"data":[{"id":"f"}]}`),
		"GET /api/session/ses_2/permission":    says(200, `{"data":[{"id":"p"}]}`),
		"GET /api/session/ses_3/permission":    says(500, `{}`),
	}}
	c, ctx := connectTo(t, V2, s), t.Context()
	if accepted, err := c.Stop(ctx); !accepted || err != nil {
		t.Errorf("stop: %v, %v", accepted, err)
	}
	if diff := cmp.Diff(map[string]any{"instanceID": "inc"}, s.body("POST /api/service/stop")); diff != "" {
		t.Error(diff)
	}
	if err := c.Quiesce(ctx); err != nil || s.did("POST /global/dispose") {
		t.Errorf("quiesce: %v", err)
	}
	for session, want := range map[string]error{"ses_1": nil, "ses_2": ErrIdle, "ses_3": nil, "ses_4": ErrIdle} {
		if err := c.Interrupt(ctx, session); !errors.Is(err, want) {
			t.Errorf("interrupt of %s: %v, want %v", session, err, want)
		}
	}
	got, err := c.Session(ctx, "ses_1")
	if diff := cmp.Diff(&Session{ID: "ses_1", Parent: "ses_0", Title: "T", Directory: "/d", Archived: true}, got); diff != "" || err != nil {
		t.Errorf("session: %v %s", err, diff)
	}
	for _, id := range []string{"ses_2", "../active/x?y"} {
		if got, err := c.Session(ctx, id); got != nil || err != nil {
			t.Errorf("session %s: %v, %v", id, got, err)
		}
	}
	if got, err := c.Session(ctx, "ses_3"); got != nil || err == nil {
		t.Errorf("a server that fails: %v, %v", got, err)
	}
	for session, want := range map[string]string{"ses_1": "question", "ses_2": "permission", "ses_4": ""} {
		if got, err := c.Waiting(ctx, session, "/d"); got != want || err != nil {
			t.Errorf("%s waits for %q (%v), want %q", session, got, err, want)
		}
	}
	if got, err := c.Waiting(ctx, "ses_3", "/d"); err == nil {
		t.Errorf("a server that fails: waits for %q", got)
	}
}
