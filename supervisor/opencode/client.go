package opencode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"intermission/restart"
)

// ContinueText is what a session is told where it can't be continued without a
// text: what the server itself says after a restart (2.0, 2026).
const ContinueText = "continue from where you left off, do not repeat completed work"

// lookupPatience is how long a delivery that isn't there is looked for: a request
// may have been accepted whose message is stored only later (v1 answers first,
// and the first touch of a directory takes up to 0.6 s).
const lookupPatience = 3 * time.Second

// Client talks to one incarnation. It is safe for concurrent use, and fits
// restart.Server. Errors never hold the password.
type Client struct {
	Text string // told to a session that needs a text; ContinueText by default. Set before use.

	wire     *wire
	api      api
	patience time.Duration
	again    chan struct{} // holds one when Events is to connect anew
}

var _ restart.Server = (*Client)(nil)

// api is what differs between generations.
type api interface {
	active(ctx context.Context) ([]string, error)
	deliver(ctx context.Context, d restart.Delivery, text string) error
	// arrived looks once.
	arrived(ctx context.Context, d restart.Delivery) (restart.Arrival, error)
	waiting(ctx context.Context, session, directory string) (string, error)
	session(ctx context.Context, id string) (*Session, error)
	interrupt(ctx context.Context, session string) error
	quiesce(ctx context.Context) error
	unquiesce()
	stop(ctx context.Context) (bool, error)
	watch(dirs []string)
	// events is where the event stream is; heartbeat its longest pause.
	events() (path string, heartbeat time.Duration)
	// connected is called when the stream has been (re)established, before the first frame.
	connected(ctx context.Context)
	// decode turns one frame into events.
	decode(frame []byte, emit func(restart.Event))
}

// Connect makes a client of the server. No request is sent yet.
func Connect(inc Incarnation) *Client {
	c := &Client{Text: ContinueText, wire: newWire(inc), patience: lookupPatience, again: make(chan struct{}, 1)}
	if inc.Generation == V1 {
		c.api = newV1(c.wire)
	} else {
		c.api = &v2{wire: c.wire}
	}
	return c
}

// Close lets go of idle connections. Calls under way are ended by their context.
func (c *Client) Close() { c.wire.close() }

// Session is what the server says of one session.
type Session struct {
	ID        string
	Title     string
	Directory string
	Parent    string
	Archived  bool
}

// Active gives the sessions that execute in this server now, sorted. On v1 that
// is the union of the directories that were seen in events or given to Watch. One
// that can't be asked while the server is well executes nothing, and is left out
// from then on; but where events told of a session at work in it, the error is a
// *PartialError. What the other directories said is returned beside every error.
func (c *Client) Active(ctx context.Context) ([]string, error) { return c.api.active(ctx) }

// PartialError says of which directories (v1) it isn't known what executes in
// them, although something was at work there. Err says why.
type PartialError struct {
	Directories []string // sorted
	Err         error
}

func (e *PartialError) Error() string { return e.Err.Error() }
func (e *PartialError) Unwrap() error { return e.Err }

// Watch adds directories to those whose sessions Active asks for (v1; v2 needs none).
func (c *Client) Watch(dirs ...string) { c.api.watch(dirs) }

// Deliver makes the session continue: see restart.Server. On v2 servers that have
// the resume call it returns when the execution has settled, which can take
// hours; there is no time limit but ctx's.
func (c *Client) Deliver(ctx context.Context, d restart.Delivery) error {
	return c.api.deliver(ctx, d, cmp.Or(d.Text, c.Text, ContinueText))
}

// Lookup tells whether d reached the server. It takes up to 3 s when it did not.
func (c *Client) Lookup(ctx context.Context, d restart.Delivery) (restart.Arrival, error) {
	deadline := time.Now().Add(c.patience)
	for {
		arrival, err := c.api.arrived(ctx, d)
		if err != nil || arrival != restart.NotArrived || !time.Now().Before(deadline) {
			return arrival, err
		}
		select {
		case <-ctx.Done():
			return restart.ArrivalUnknown, ctx.Err()
		case <-time.After(c.patience / 10):
		}
	}
}

// Waiting gives what the session waits for: "permission", "question" or "".
func (c *Client) Waiting(ctx context.Context, session, directory string) (string, error) {
	return c.api.waiting(ctx, session, directory)
}

// Session asks for one session; nil when the server has none of that id.
func (c *Client) Session(ctx context.Context, id string) (*Session, error) {
	return c.api.session(ctx, id)
}

// ErrIdle says that there was nothing to interrupt: the session is idle, or gone.
var ErrIdle = errors.New("the session is not at work")

// Interrupt ends the session's execution as its user would; nothing happens to an idle
// one. ErrIdle when the server tells that it was.
func (c *Client) Interrupt(ctx context.Context, session string) error {
	return c.api.interrupt(ctx, session)
}

// Quiesce makes v1 end every turn and tool, with partial text saved, while it
// stays up; the caller then waits for its children and ends it by signal. On v2,
// whose Stop does that, nothing happens. Ends of turns that Events tells from
// here on are EventInterrupted or EventFailed, never EventSucceeded.
func (c *Client) Quiesce(ctx context.Context) error { return c.api.quiesce(ctx) }

// Unquiesce says that the stop was abandoned: turns that end from here on count
// as what Events says of them, as they did before Quiesce.
func (c *Client) Unquiesce() { c.api.unquiesce() }

// Stop asks a v2 server to stop gracefully. accepted is false when it is another
// incarnation by now, and always on v1, which has no such call.
func (c *Client) Stop(ctx context.Context) (accepted bool, err error) { return c.api.stop(ctx) }

// send delivers one keyed message and judges the outcome for restart.Server. gone
// is the tag of the error that says there is no such session.
func send(ctx context.Context, w *wire, path string, body any, gone string) error {
	a, err := w.call(ctx, http.MethodPost, path, body, maxAnswer)
	switch {
	case err != nil:
		return transportVerdict(err)
	case a.status == http.StatusConflict && a.tag() == "ConflictError":
		return nil // our key is there with another text: an earlier attempt has arrived
	}
	return verdict(a, gone)
}

// transportVerdict judges a delivery that was not answered: sure only when
// nothing was written.
func transportVerdict(err error) error {
	var unsent *unsentError
	if errors.As(err, &unsent) {
		return &restart.RefusedError{Reason: "the server could not be reached: " + cause(unsent.err)}
	}
	return fmt.Errorf("the connection broke before the server answered: %w", err)
}

// verdict judges the answer to a delivery.
func verdict(a answer, gone string) error {
	failure := a.failure("continue the session")
	switch {
	case a.good():
		return nil
	case a.status == http.StatusNotFound && a.tag() == gone:
		return &restart.RefusedError{Gone: true, Reason: "the session does not exist any more"}
	case a.status == http.StatusRequestTimeout || a.status >= 500:
		return &restart.AnsweredError{Reason: failure.Error()}
	default:
		return &restart.RefusedError{Reason: failure.Error()}
	}
}
