package opencode

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"intermission/restart"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
	missedBeats    = 3           // so many heartbeats without a byte, and the connection counts as dead
	progressPause  = time.Second // at most one EventProgress a session in it
)

// errSilentStream ends a connection on which nothing came for too long.
var errSilentStream = errors.New("the event stream fell silent")

// Events holds the server's event stream open until ctx ends, and returns ctx's
// error then. It reconnects with back-off (100 ms to 5 s). Each time that the
// stream is established resync is called, before any event: events that came
// while no stream was held are lost, so the caller has to compare what it
// believes with Active and the database. When resync fails, the stream is taken
// down and tried again. handle gets events in order, from one goroutine, and must
// not block: a server drops a slow reader. Only one Events at a time.
func (c *Client) Events(ctx context.Context, handle func(restart.Event), resync func(context.Context) error) error {
	quiet := coalesce(handle)
	pause := firstReconnect
	for {
		began := time.Now()
		cut := c.streamOnce(ctx, quiet, resync)
		switch {
		case cut: // the pause is for a server that doesn't want us
			pause = firstReconnect
			continue
		case time.Since(began) > lastReconnect:
			pause = firstReconnect
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.again:
			pause = firstReconnect
		case <-time.After(pause):
			pause = min(pause*2, lastReconnect)
		}
	}
}

// Reconnect has Events give up the connection that it holds, or the pause that it
// makes, and connect at once: whether a connection has outlived the machine's sleep
// can't be seen by it.
func (c *Client) Reconnect() {
	select {
	case c.again <- struct{}{}:
	default: // it is asked for already
	}
}

// streamOnce is stream, which Reconnect cuts.
func (c *Client) streamOnce(ctx context.Context, emit func(restart.Event), resync func(context.Context) error) (cut bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over, wasCut := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case <-c.again:
			cancel()
			wasCut <- true
		case <-over:
			wasCut <- false
		}
	}()
	_ = c.stream(ctx, emit, resync) // why it ended changes nothing: health tells how the server is
	close(over)
	return <-wasCut
}

// stream holds one connection until it ends.
func (c *Client) stream(ctx context.Context, emit func(restart.Event), resync func(context.Context) error) error {
	path, heartbeat := c.api.events()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(min(missedBeats*heartbeat, callTimeout), func() { cancel(errSilentStream) })
	defer watchdog.Stop()

	req, err := c.wire.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := c.wire.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		return fmt.Errorf("cannot hold the event stream: the server answered %d %s", res.StatusCode, kind)
	}
	watchdog.Stop() // what follows has limits of its own
	c.api.connected(ctx)
	if err := resync(ctx); err != nil {
		return err
	}
	watchdog.Reset(missedBeats * heartbeat)
	return readFrames(res.Body, func() { watchdog.Reset(missedBeats * heartbeat) }, func(frame []byte) {
		c.api.decode(frame, func(e restart.Event) {
			if e.Err != "" {
				e.Err = c.wire.quote(e.Err)
			}
			emit(e)
		})
	})
}

// coalesce thins out progress: it comes with every word that a model says.
func coalesce(handle func(restart.Event)) func(restart.Event) {
	last := map[string]time.Time{}
	return func(e restart.Event) {
		switch e.Kind {
		case restart.EventProgress:
			now := time.Now()
			if now.Sub(last[e.Session]) < progressPause {
				return
			}
			last[e.Session] = now
		case restart.EventStarted:
		default:
			delete(last, e.Session) // it has ended
		}
		handle(e)
	}
}
