package opencode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

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
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: r, Request: req}, nil
}

// TestReconnect: a connection that seems well is given up at once, and so is the pause
// between attempts.
func TestReconnect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &pipes{opened: make(chan *io.PipeWriter, 1)}
		c := Connect(Incarnation{Generation: V2, URL: "http://127.0.0.1:1"})
		c.wire.http.Transport = server
		ctx, cancel := context.WithCancel(t.Context())
		resyncs := 0
		ended := make(chan error, 1)
		go func() { ended <- c.Events(ctx, discard, func(context.Context) error { resyncs++; return nil }) }()
		<-server.opened
		synctest.Wait()
		asked := time.Now()
		c.Reconnect()
		second := <-server.opened
		synctest.Wait()
		if d := time.Since(asked); d != 0 || resyncs != 2 {
			t.Errorf("connected anew after %s, %d resynchronisations", d, resyncs)
		}
		server.refuse.Store(true)
		_ = second.Close()
		time.Sleep(30 * time.Second) // it pauses for 5 s at a time by now
		synctest.Wait()
		server.refuse.Store(false)
		asked = time.Now()
		c.Reconnect()
		<-server.opened
		if d := time.Since(asked); d != 0 {
			t.Errorf("the pause went on for %s", d)
		}
		c.Reconnect()
		<-server.opened
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		c.Reconnect() // nobody listens any more
		c.Reconnect()
	})
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
		const ms = time.Millisecond
		want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5000 * ms, 5000 * ms, 5000 * ms, 5000 * ms}
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
