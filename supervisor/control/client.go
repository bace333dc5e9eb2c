package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	sse "github.com/tmaxmax/go-sse"

	"intermission/platform"
)

const (
	dialTimeout   = 2 * time.Second
	answerTimeout = 10 * time.Second // of a call that only reads
	maxEvent      = 64 << 20         // bytes of one snapshot
)

// Client calls a supervisor. It is a Backend; its errors are *Error.
type Client struct {
	path          string
	http          *http.Client
	answerTimeout time.Duration

	// StartAct gives what a person does where no supervisor runs. It is called for
	// that error only, and may look at how the service is installed; nil is its start.
	StartAct func() string
}

var _ Backend = (*Client)(nil)

// Dial makes a client of the supervisor that listens at path (a socket, on
// Windows a named pipe). It connects at the first call; a call that finds nobody
// there fails with CodeNoSupervisor.
func Dial(path string) *Client {
	c := &Client{path: path, answerTimeout: answerTimeout}
	c.http = &http.Client{Transport: &http.Transport{DialContext: c.dial, DisableCompression: true}}
	return c
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := platform.Dial(ctx, c.path)
	switch {
	case errors.Is(err, platform.ErrNoListener):
		act := "start it with: intermission service start"
		if c.StartAct != nil {
			act = c.StartAct()
		}
		return nil, &Error{Code: CodeNoSupervisor, Message: "no supervisor is running; " + act}
	case err != nil:
		return nil, &Error{Code: CodeFailed, Message: fmt.Sprintf("cannot reach the supervisor at %s: %v", c.path, err)}
	}
	return conn, nil
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status implements Backend.
func (c *Client) Status(ctx context.Context) (st Status, err error) {
	return st, c.get(ctx, "/v1/status", &st)
}

// Pending implements Backend.
func (c *Client) Pending(ctx context.Context) (p Pending, err error) {
	return p, c.get(ctx, "/v1/pending", &p)
}

// Show implements Backend.
func (c *Client) Show(ctx context.Context, id string) (d Detail, err error) {
	path, err := sessionPath(id, "")
	if err != nil {
		return d, err
	}
	return d, c.get(ctx, path, &d)
}

// Resume implements Backend. When the connection breaks before the answer, the
// error is CodeUnknown.
func (c *Client) Resume(ctx context.Context, id string, at int64) (res Result, err error) {
	path, err := sessionPath(id, "/resume")
	if err != nil {
		return res, err
	}
	err = c.send(ctx, path, atBody{At: at}, &res)
	var lost *lostError
	if errors.As(err, &lost) {
		return res, &Error{Code: CodeUnknown, Message: fmt.Sprintf("whether %s was resumed is not known, because the supervisor's answer was lost (%v); look with: intermission show %s", id, lost, id)}
	}
	return res, err
}

// Dismiss implements Backend.
func (c *Client) Dismiss(ctx context.Context, id string, at int64) (d Dismissed, err error) {
	path, err := sessionPath(id, "/dismiss")
	if err != nil {
		return d, err
	}
	return d, c.post(ctx, path, atBody{At: at}, &d)
}

// Interrupt implements Backend.
func (c *Client) Interrupt(ctx context.Context, id string, at int64) (i Interrupted, err error) {
	path, err := sessionPath(id, "/interrupt")
	if err != nil {
		return i, err
	}
	return i, c.post(ctx, path, atBody{At: at}, &i)
}

// Attach implements Backend.
func (c *Client) Attach(ctx context.Context, id string) (a Attachment, err error) {
	path, err := sessionPath(id, "/attach")
	if err != nil {
		return a, err
	}
	return a, c.get(ctx, path, &a)
}

// StartServer implements Backend.
func (c *Client) StartServer(ctx context.Context) (st Status, err error) {
	return st, c.post(ctx, "/v1/server/start", struct{}{}, &st)
}

// StopServer implements Backend.
func (c *Client) StopServer(ctx context.Context) (st Status, err error) {
	return st, c.post(ctx, "/v1/server/stop", struct{}{}, &st)
}

// RestartServer implements Backend.
func (c *Client) RestartServer(ctx context.Context) (st Status, err error) {
	return st, c.post(ctx, "/v1/server/restart", struct{}{}, &st)
}

// HandOver implements Backend. It returns when the supervisor has ended, or has let
// go of its instance lock at least.
func (c *Client) HandOver(ctx context.Context) (Ending, error) {
	return c.end(ctx, "/v1/handover", handedOverPatience)
}

// Leave implements Backend.
func (c *Client) Leave(ctx context.Context) (Ending, error) {
	return c.end(ctx, "/v1/leave", platform.ServiceStopLimit)
}

// MayLeave implements Backend. An older supervisor doesn't know the question: it may.
func (c *Client) MayLeave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	return c.post(ctx, "/v1/leave/check", struct{}{}, &struct{}{})
}

// handedOverPatience bounds the end of a supervisor that has handed over.
const handedOverPatience = 20 * time.Second

// end tells the supervisor to end, and waits until it has let go of its lock.
func (c *Client) end(ctx context.Context, path string, patience time.Duration) (e Ending, err error) {
	if err := c.post(ctx, path, struct{}{}, &e); err != nil {
		return e, err
	}
	c.Close() // an open connection would hold up its end
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := platform.TryLock(e.Lock)
		if err == nil {
			return e, lock.Unlock()
		}
		if _, err := platform.Identify(e.PID); errors.Is(err, platform.ErrNoProcess) {
			return e, nil // and another holds the lock by now
		}
		if !errors.Is(err, platform.ErrLocked) {
			return e, &Error{Code: CodeFailed, Message: fmt.Sprintf("the supervisor is ending, but whether it has ended is not known: %v", err)}
		}
		select {
		case <-tick.C: // a lock tells nobody that it is free
		case <-ctx.Done():
			return e, &Error{Code: CodeFailed, Message: fmt.Sprintf("the supervisor (pid %d) was told to end, and doesn't; look at its log", e.PID)}
		}
	}
}

// Logs implements Backend. It returns nil when ctx ends a follow, or the supervisor does.
func (c *Client) Logs(ctx context.Context, w io.Writer, n int, follow bool) error {
	q := url.Values{"n": {strconv.Itoa(n)}, "follow": {strconv.FormatBool(follow)}}
	resp, err := c.call(ctx, http.MethodGet, "/v1/logs?"+q.Encode(), nil)
	if err != nil {
		return c.failure(ctx, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil && ctx.Err() == nil {
		return &Error{Code: CodeFailed, Message: "the log stream broke: " + err.Error()}
	}
	return nil
}

// Watch implements Backend. It returns nil when ctx ends or the supervisor shuts
// down, and send's error when send fails.
func (c *Client) Watch(ctx context.Context, send func(Snapshot) error) error {
	resp, err := c.call(ctx, http.MethodGet, "/v1/events", nil)
	if err != nil {
		return c.failure(ctx, err)
	}
	defer resp.Body.Close()
	for event, err := range sse.Read(resp.Body, &sse.ReadConfig{MaxEventSize: maxEvent}) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return &Error{Code: CodeFailed, Message: "the event stream broke: " + err.Error()}
		}
		var snap Snapshot
		if err := json.Unmarshal([]byte(event.Data), &snap); err != nil {
			return &Error{Code: CodeFailed, Message: "cannot read an event of the supervisor: " + err.Error()}
		}
		if err := send(snap); err != nil {
			return err
		}
	}
	return nil
}

// sessionPath refuses what can't be a session id, before a path is made of it.
func sessionPath(id, action string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", &Error{Code: CodeUsage, Message: fmt.Sprintf("%q is not a session id; see: intermission pending", id)}
	}
	return "/v1/sessions/" + url.PathEscape(id) + action, nil
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerTimeout)
	defer cancel()
	return c.failure(ctx, c.exchange(ctx, http.MethodGet, path, nil, out))
}

func (c *Client) post(ctx context.Context, path string, in, out any) error {
	return c.failure(ctx, c.send(ctx, path, in, out))
}

func (c *Client) send(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("cannot encode a request: %w", err)
	}
	return c.exchange(ctx, http.MethodPost, path, body, out)
}

func (c *Client) exchange(ctx context.Context, method, path string, body []byte, out any) error {
	resp, err := c.call(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return &lostError{err}
	}
	_, _ = io.Copy(io.Discard, resp.Body) // to its end, so that the connection is used again
	return nil
}

// call sends a request and returns a good answer, or the error that the supervisor sent.
func (c *Client) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("cannot make a request: %w", err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var e *Error
		if errors.As(err, &e) { // from the dialer
			return nil, e
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which tells a person nothing
		}
		return nil, &lostError{err}
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var failed errorBody
	if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil || failed.Error == nil {
		return nil, &lostError{fmt.Errorf("it answered %s", resp.Status)}
	}
	return nil, failed.Error
}

// lostError says that a request may have arrived and no answer came.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// failure words an error of the connection for a person; others stay as they are.
func (c *Client) failure(ctx context.Context, err error) error {
	var lost *lostError
	if !errors.As(err, &lost) {
		return err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Error{Code: CodeFailed, Message: fmt.Sprintf("the supervisor at %s does not answer; look at its log", c.path)}
	}
	what := "the connection to the supervisor broke before it answered"
	return &Error{Code: CodeFailed, Message: fmt.Sprintf("%s: %v", what, lost)}
}
