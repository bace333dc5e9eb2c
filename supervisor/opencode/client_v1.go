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
	well func(context.Context) bool // whether the server is healthy

	mu    sync.Mutex
	dirs  map[string]struct{}
	where map[string]string // session that executes, as far as events told → its directory

	quiesced atomic.Bool // the turns that end now are ended by us

	// The following is of the event stream, and only touched by it.
	busy   map[string]bool   // session → executes; absent: not known
	failed map[string]string // session → name of the error that ended its turn
	why    map[string]string // session → that error's message
}

func newV1(w *wire) *v1 {
	return &v1{
		wire: w, well: func(ctx context.Context) bool { return Health(ctx, w.inc) == nil },
		dirs: map[string]struct{}{}, where: map[string]string{},
		busy: map[string]bool{}, failed: map[string]string{}, why: map[string]string{},
	}
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

// watch adds directories, each after something of it was seen, or for the caller.
func (v *v1) watch(dirs []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, dir := range dirs {
		if dir != "" && dir != "global" { // "global" stands for no directory in events
			v.dirs[dir] = struct{}{}
		}
	}
}

func (v *v1) active(ctx context.Context) ([]string, error) {
	active, err := v.survey(ctx)
	return slices.Sorted(maps.Keys(active)), err
}

// survey asks each directory what executes there, for there is no call for all of
// them, and gives the directories of these sessions.
func (v *v1) survey(ctx context.Context) (map[string]string, error) {
	v.mu.Lock()
	dirs := slices.Collect(maps.Keys(v.dirs))
	v.mu.Unlock()
	var (
		group  errgroup.Group
		mu     sync.Mutex
		active = map[string]string{}
		mute   []string // directories
		why    []error
		errs   []error // of the server, not of one directory
	)
	group.SetLimit(statusConcurrency)
	for _, dir := range dirs {
		group.Go(func() error {
			busy, err := v.status(ctx, dir)
			ofDirectory := err != nil && v.ofDirectory(ctx, err)
			mu.Lock()
			defer mu.Unlock()
			for _, session := range busy {
				active[session] = dir
			}
			switch {
			case ofDirectory:
				mute, why = append(mute, dir), append(why, err)
			case err != nil:
				errs = append(errs, err)
			}
			return nil
		})
	}
	_ = group.Wait() // no function of the group fails
	if known := v.unwatch(mute); len(known) > 0 && len(errs) == 0 {
		return active, &PartialError{Directories: known, Err: errors.Join(why...)}
	}
	return active, errors.Join(errs...)
}

// ofDirectory tells whether it is the directory that can't be asked, and not the
// server. 1.18.33 answers 400 for one with an unreadable opencode.json, 500 for
// one that is a file, and nothing while a plugin of it waits for the network:
// each time when it loads the directory. Of one that is loaded it answers at
// once, even if the configuration was broken or the directory deleted since.
func (v *v1) ofDirectory(ctx context.Context, err error) bool {
	var answered *answeredError
	if errors.As(err, &answered) {
		return answered.status != http.StatusUnauthorized && answered.status != http.StatusForbidden
	}
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && v.well(ctx)
}

// unwatch stops watching directories that can't be asked, but for those in which
// a session is known to execute, which it gives, sorted. What is not loaded
// executes nothing; with the first event of it it is watched again.
func (v *v1) unwatch(dirs []string) (known []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	atWork := slices.Collect(maps.Values(v.where))
	for _, dir := range dirs {
		if slices.Contains(atWork, dir) {
			known = append(known, dir)
		} else {
			delete(v.dirs, dir)
		}
	}
	slices.Sort(known)
	return known
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
	err := send(ctx, v.wire, in(v.path(d.Session, "prompt_async"), d.Directory), body, goneV1)
	var refused *restart.RefusedError
	if !errors.As(err, &refused) { // else nothing executes there, and it may not even be loaded
		v.watch([]string{d.Directory})
	}
	return err
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
	if err != nil {
		return err
	}
	if s == nil {
		return ErrIdle
	}
	busy, err := v.status(ctx, s.Directory) // the abort of what is idle is answered like that of what isn't
	if err != nil {
		return err
	}
	if !slices.Contains(busy, session) {
		return ErrIdle
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
	active, err := v.survey(ctx)
	unknown := func(string) bool { return err != nil }
	var partial *PartialError
	if errors.As(err, &partial) {
		unknown = func(dir string) bool { return slices.Contains(partial.Directories, dir) }
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for session := range v.busy {
		if unknown(v.where[session]) {
			delete(v.busy, session)
		} else {
			v.busy[session] = false
		}
	}
	maps.DeleteFunc(v.where, func(_, dir string) bool { return !unknown(dir) })
	for session, dir := range active {
		v.busy[session], v.where[session] = true, dir
	}
}
