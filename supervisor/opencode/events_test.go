package opencode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
		if e.Session != session || e.Directory != "/home/user/projA" || e.At == 0 {
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
		"accepted": {http.StatusOK, []string{"started s", "interrupted s"}},
		"refused":  {http.StatusBadRequest, []string{"started s", "succeeded s"}},
	} {
		api := newV1(newWire(serve(t, V1, func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, c.answer, "true") })))
		var got []string
		emit := func(e restart.Event) { got = append(got, told(e)) }
		api.decode(fmt.Appendf(nil, status, "busy"), emit)
		if err := api.quiesce(t.Context()); (err == nil) != (c.answer == http.StatusOK) {
			t.Errorf("%s: %v", name, err)
		}
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

// stream is a server with an event stream that a test feeds.
type stream struct {
	t      *testing.T
	inc    Incarnation
	opened chan chan string // a channel for each connection; closing it cuts the connection
	status atomic.Value     // of GET /session/status
}

func newStream(t *testing.T, generation Generation) *stream {
	s := &stream{t: t, opened: make(chan chan string)}
	s.status.Store(`{}`)
	s.inc = serve(t, generation, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/event", "/global/event":
			s.feed(w, r)
		case "/session/status":
			sayJSON(w, 200, s.status.Load().(string))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	return s
}

func (s *stream) feed(w http.ResponseWriter, r *http.Request) {
	lines := make(chan string)
	select {
	case s.opened <- lines: // before the client sees anything, so that it can't have gone by then
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, line)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// follower runs Events and keeps what it tells.
type follower struct {
	t      *testing.T
	events chan string
	ended  chan error
	cancel context.CancelFunc
}

func follow(t *testing.T, c *Client, resync func(context.Context) error) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{t: t, events: make(chan string, 100), ended: make(chan error, 1), cancel: cancel}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-f.ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Events returned %v", err)
				}
			case <-time.After(5 * time.Second):
				t.Error("Events does not end with its context")
			}
			c.Close()
		})
	}
	t.Cleanup(stop)
	go func() {
		f.ended <- c.Events(ctx, func(e restart.Event) { f.events <- told(e) }, func(ctx context.Context) error {
			f.events <- "resync"
			if resync != nil {
				return resync(ctx)
			}
			return nil
		})
	}()
	return f
}

func (f *follower) want(events ...string) {
	f.t.Helper()
	for _, want := range events {
		select {
		case got := <-f.events:
			if got != want {
				f.t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			f.t.Fatalf("waited in vain for %q", want)
		}
	}
}

func (s *stream) next() chan string {
	s.t.Helper()
	select {
	case lines := <-s.opened:
		return lines
	case <-time.After(10 * time.Second):
		s.t.Fatal("nobody connects")
		return nil
	}
}

func started(session string) string {
	return fmt.Sprintf("data: {\"type\":\"session.execution.started\",\"data\":{\"sessionID\":%q}}\n\n", session)
}

func TestEventsReconnect(t *testing.T) {
	t.Parallel()
	s := newStream(t, V2)
	f := follow(t, Connect(s.inc), nil)
	first := s.next()
	f.want("resync")
	first <- ": heartbeat\n\n" + started("a")
	f.want("started a")
	first <- `data: {"type":"session.execution.started","data":{"sessionID":"half` // cut off by the end of the connection
	close(first)
	second := s.next()
	f.want("resync")
	second <- started("b")
	f.want("started b")
}

// pipes is a server whose event streams are pipes, so that its time can be a bubble's.
type pipes struct {
	opened chan *io.PipeWriter
	refuse atomic.Bool
	mu     sync.Mutex
	at     []time.Time
}

// connections tells when each was asked for.
func (p *pipes) connections() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.at)
}

func (p *pipes) RoundTrip(req *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.at = append(p.at, time.Now())
	p.mu.Unlock()
	if p.refuse.Load() {
		return nil, errors.New("connection refused")
	}
	r, w := io.Pipe()
	context.AfterFunc(req.Context(), func() { _ = r.CloseWithError(req.Context().Err()) })
	p.opened <- w
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
}

func TestEventsGiveUpASilentConnection(t *testing.T) {
	t.Parallel()
	for generation, beat := range map[Generation]time.Duration{V1: 10 * time.Second, V2: 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			server := &pipes{opened: make(chan *io.PipeWriter, 1)}
			c := Connect(Incarnation{Generation: generation, URL: "http://127.0.0.1:1"})
			c.wire.http.Transport = server
			ctx, cancel := context.WithCancel(t.Context())
			resyncs := 0
			ended := make(chan error, 1)
			go func() { ended <- c.Events(ctx, discard, func(context.Context) error { resyncs++; return nil }) }()
			first := <-server.opened
			for range 8 { // comments keep it alive
				_, _ = io.WriteString(first, ": heartbeat\n\n")
				time.Sleep(beat + time.Second)
			}
			if len(server.connections()) != 1 {
				t.Fatalf("%s: given up while it lived", generation)
			}
			_, _ = io.WriteString(first, ": heartbeat\n\n")
			silent := time.Now()
			<-server.opened
			if after := time.Since(silent); after < 3*beat || after > 3*beat+time.Second {
				t.Errorf("%s: given up after %s", generation, after)
			}
			synctest.Wait()
			if resyncs != 2 {
				t.Errorf("%s: %d resynchronisations", generation, resyncs)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v", generation, err)
			}
		})
	}
}

func TestEventsBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &pipes{opened: make(chan *io.PipeWriter, 1)}
		server.refuse.Store(true)
		c := Connect(Incarnation{Generation: V2, URL: "http://127.0.0.1:1"})
		c.wire.http.Transport = server
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- c.Events(ctx, discard, func(context.Context) error { return nil }) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		var pauses []time.Duration
		at := server.connections()
		for n := range at[1:] {
			pauses = append(pauses, at[n+1].Sub(at[n]))
		}
		want := []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000}
		for n := range want {
			want[n] *= time.Millisecond
		}
		if diff := cmp.Diff(want, pauses); diff != "" {
			t.Error(diff)
		}
		server.refuse.Store(false)
		stream := <-server.opened
		time.Sleep(lastReconnect + time.Second) // it has lived: begin anew
		cut := time.Now()
		_ = stream.Close()
		<-server.opened
		if pause := time.Since(cut); pause != firstReconnect {
			t.Errorf("after a stream that had lived: %s", pause)
		}
		<-ended
	})
}

func TestEventsResyncFails(t *testing.T) {
	t.Parallel()
	s := newStream(t, V2)
	var tries atomic.Int32
	f := follow(t, Connect(s.inc), func(context.Context) error {
		if tries.Add(1) == 1 {
			return errors.New("the database is busy")
		}
		return nil
	})
	s.next()
	f.want("resync")
	second := s.next()
	f.want("resync")
	second <- started("a")
	f.want("started a")
}

func TestEventsOfWhatIsNoStream(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	inc := serve(t, V1, func(w http.ResponseWriter, r *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			sayPage(w)
		}
	})
	f := follow(t, Connect(inc), nil)
	poll(t, "three tries", func() bool { return asked.Load() >= 3 })
	select {
	case got := <-f.events:
		t.Errorf("told %q", got)
	default:
	}
}

func TestEventsV1TellsOnlyChangesAfterReconnect(t *testing.T) {
	t.Parallel()
	s := newStream(t, V1)
	s.status.Store(`{"already":{"type":"busy"}}`)
	c := Connect(s.inc)
	c.Watch("/d")
	status := func(session, kind string) string {
		return fmt.Sprintf("data: {\"directory\":\"/d\",\"payload\":{\"type\":\"session.status\",\"properties\":{\"sessionID\":%q,\"status\":{\"type\":%q}}}}\n\n", session, kind)
	}
	f := follow(t, c, nil)
	first := s.next()
	f.want("resync")
	first <- status("already", "busy") + status("a", "busy") + status("b", "busy")
	f.want("started a", "started b")
	s.status.Store(`{"a":{"type":"busy"},"already":{"type":"retry"}}`) // b has ended meanwhile
	close(first)
	second := s.next()
	f.want("resync")
	second <- status("a", "busy") + status("b", "idle") + status("b", "busy") + status("a", "idle") + status("already", "idle")
	f.want("started b", "succeeded a", "succeeded already")
}
