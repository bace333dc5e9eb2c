package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"intermission/restart"
)

// goneV1 is the error of a session or message that isn't there.
const goneV1 = "NotFoundError"

// statusConcurrency is how many directories are asked at once: the first touch of
// one costs the server 0.2 to 0.6 s of work.
const statusConcurrency = 4

// v1 speaks the API of 1.18. What concerns a session names its directory, since
// the server keeps an instance of itself for each.
type v1 struct {
	wire *wire

	mu   sync.Mutex
	dirs map[string]struct{}

	quiesced atomic.Bool // the turns that end now are ended by us

	// The following is of the event stream, and only touched by it.
	busy   map[string]bool   // session → executes; absent: not known
	failed map[string]string // session → name of the error that ended its turn
	why    map[string]string // session → that error's message
}

func newV1(w *wire) *v1 {
	return &v1{wire: w, dirs: map[string]struct{}{}, busy: map[string]bool{}, failed: map[string]string{}, why: map[string]string{}}
}

func in(path, directory string) string {
	if directory == "" {
		return path
	}
	return path + "?directory=" + url.QueryEscape(directory)
}

func (v *v1) path(session string, rest ...string) string {
	return "/session/" + strings.Join(append([]string{url.PathEscape(session)}, rest...), "/")
}

func (v *v1) watch(dirs []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, dir := range dirs {
		if dir != "" && dir != "global" { // "global" stands for no directory in events
			v.dirs[dir] = struct{}{}
		}
	}
}

// active asks each directory: there is no call for all of them.
func (v *v1) active(ctx context.Context) ([]string, error) {
	v.mu.Lock()
	dirs := slices.Sorted(maps.Keys(v.dirs))
	v.mu.Unlock()
	var (
		group  errgroup.Group
		mu     sync.Mutex
		active = map[string]struct{}{}
		errs   []error
	)
	group.SetLimit(statusConcurrency)
	for _, dir := range dirs {
		group.Go(func() error {
			busy, err := v.status(ctx, dir)
			mu.Lock()
			defer mu.Unlock()
			for _, session := range busy {
				active[session] = struct{}{}
			}
			if err != nil {
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	return slices.Sorted(maps.Keys(active)), errors.Join(errs...)
}

// status gives the sessions of one directory that execute.
func (v *v1) status(ctx context.Context, dir string) ([]string, error) {
	var said map[string]struct {
		Type string `json:"type"`
	}
	what := fmt.Sprintf("ask what is active in %q", dir)
	found, err := v.wire.get(ctx, what, in("/session/status", dir), &said)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("cannot %s: the server has no such call", what)
	}
	var busy []string
	for session, status := range said {
		if status.Type != "idle" {
			busy = append(busy, session)
		}
	}
	return busy, nil
}

// deliver sends a prompt under a stable message and part id. The agent must be
// named, or a session of another agent goes on as the default one.
func (v *v1) deliver(ctx context.Context, d restart.Delivery, text string) error {
	body := map[string]any{
		"messageID": Key(d),
		"parts":     []map[string]string{{"id": PartKey(d), "type": "text", "text": text}},
	}
	if d.Agent != "" {
		body["agent"] = d.Agent
	}
	if d.Model != "" {
		if !json.Valid([]byte(d.Model)) {
			return &restart.RefusedError{Reason: fmt.Sprintf("the session's model %q can't be read", d.Model)}
		}
		body["model"] = json.RawMessage(d.Model)
	}
	v.watch([]string{d.Directory})
	return send(ctx, v.wire, in(v.path(d.Session, "prompt_async"), d.Directory), body, goneV1)
}

func (v *v1) arrived(ctx context.Context, d restart.Delivery) (restart.Arrival, error) {
	var message struct{}
	found, err := v.wire.get(ctx, "look for the message", in(v.path(d.Session, "message", Key(d)), d.Directory), &message)
	switch {
	case err != nil:
		return restart.ArrivalUnknown, err
	case found:
		return restart.Arrived, nil
	}
	return restart.NotArrived, nil
}

func (v *v1) waiting(ctx context.Context, session, directory string) (string, error) {
	for _, what := range []string{"permission", "question"} {
		var said []struct {
			SessionID string `json:"sessionID"`
		}
		if _, err := v.wire.get(ctx, "ask what the session waits for", in("/"+what, directory), &said); err != nil {
			return "", err
		}
		for _, request := range said {
			if request.SessionID == session {
				return what, nil
			}
		}
	}
	return "", nil
}

func (v *v1) session(ctx context.Context, id string) (*Session, error) {
	var s struct {
		ID        string `json:"id"`
		ParentID  string `json:"parentID"`
		Title     string `json:"title"`
		Directory string `json:"directory"`
		Time      struct {
			Archived float64 `json:"archived"`
		} `json:"time"`
	}
	found, err := v.wire.get(ctx, "ask for the session", v.path(id), &s)
	if err != nil || !found {
		return nil, err
	}
	return &Session{ID: s.ID, Title: s.Title, Directory: s.Directory, Parent: s.ParentID, Archived: s.Time.Archived > 0}, nil
}

func (v *v1) interrupt(ctx context.Context, session string) error {
	s, err := v.session(ctx, session)
	if err != nil || s == nil {
		return err
	}
	return v.wire.post(ctx, "interrupt the session", in(v.path(session, "abort"), s.Directory), nil, nil)
}

func (v *v1) quiesce(ctx context.Context) error {
	v.quiesced.Store(true)
	a, err := v.wire.call(ctx, http.MethodPost, "/global/dispose", nil, maxAnswer)
	if err != nil {
		return fmt.Errorf("cannot end the turns: %w", err) // it may have arrived
	}
	if !a.good() {
		v.quiesced.Store(false)
		return a.failure("end the turns")
	}
	return nil
}

func (v *v1) unquiesce() { v.quiesced.Store(false) }

func (v *v1) stop(context.Context) (bool, error) { return false, nil }

func (v *v1) events() (string, time.Duration) { return "/global/event", 10 * time.Second }

// connected brings busy up to date with what happened while no stream was held.
// Of a directory that can't be asked nothing is known: then a start is told once more.
func (v *v1) connected(ctx context.Context) {
	active, err := v.active(ctx)
	if err != nil {
		clear(v.busy)
	}
	for session := range v.busy {
		v.busy[session] = false
	}
	for _, session := range active {
		v.busy[session] = true
	}
}
