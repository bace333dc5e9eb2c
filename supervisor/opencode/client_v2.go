package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"intermission/restart"
)

// maxDescription bounds the server's own OpenAPI document; a real one has 0.4 MB.
const maxDescription = 4 << 20

// goneV2 is the error of a session that isn't there. A 404 without it means that
// the call isn't there.
const goneV2 = "SessionNotFoundError"

// v2 speaks the API under /api.
type v2 struct {
	wire *wire

	mu       sync.Mutex
	noResume bool     // it answered that it has no resume call
	offers   *offered // nil: not asked yet
}

// offered is what the server's own description says of the ways to continue a session.
type offered struct {
	described   bool // there is a description
	resume      bool
	syntheticID bool // synthetic takes an id
}

func (v *v2) path(session string, rest ...string) string {
	return "/api/session/" + strings.Join(append([]string{url.PathEscape(session)}, rest...), "/")
}

func (v *v2) active(ctx context.Context) ([]string, error) {
	var said struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	found, err := v.wire.get(ctx, "ask what is active", "/api/session/active", &said)
	if err != nil {
		return nil, err
	}
	if !found || said.Data == nil { // never to be taken for "nothing is active"
		return nil, fmt.Errorf("cannot ask what is active: the answer has another form")
	}
	active := make([]string, 0, len(said.Data))
	for session := range said.Data {
		active = append(active, session)
	}
	slices.Sort(active)
	return active, nil
}

// deliver prefers what leaves no trace in the session's history: resume, where
// the server has it and there is nothing to be told; else a synthetic message
// under a stable id; else a prompt under a stable id. No agent, model or
// permission is sent: the session has its own.
func (v *v2) deliver(ctx context.Context, d restart.Delivery, text string) error {
	if d.Text == "" && !v.lacksResume() {
		missing, err := v.resume(ctx, d.Session)
		if !missing {
			return err
		}
		v.mu.Lock()
		v.noResume = true
		v.mu.Unlock()
	}
	call := "prompt"
	if v.describe(ctx).syntheticID {
		call = "synthetic"
	}
	body := map[string]string{"id": Key(d), "text": text}
	return send(ctx, v.wire, v.path(d.Session, call), body, goneV2)
}

func (v *v2) lacksResume() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.noResume
}

// resume is answered when the execution has settled.
func (v *v2) resume(ctx context.Context, session string) (missing bool, err error) {
	a, err := v.wire.call(ctx, http.MethodPost, v.path(session, "resume"), nil, maxAnswer)
	if err == nil {
		unknown := a.status == http.StatusNotFound && a.tag() != goneV2 || a.status == http.StatusMethodNotAllowed
		if unknown || a.status == http.StatusOK && !a.good() {
			return true, nil
		}
		return false, verdict(a, goneV2)
	}
	return false, transportVerdict(err)
}

// describe looks into the server's own description, once. A server that can't be
// asked is asked again next time.
func (v *v2) describe(ctx context.Context) offered {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.offers != nil {
		return *v.offers
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, path := range []string{"/openapi.json", "/doc"} {
		a, err := v.wire.call(ctx, http.MethodGet, path, nil, maxDescription)
		if err != nil && !errors.Is(err, errTooLong) {
			return offered{}
		}
		if err == nil && a.status == http.StatusOK && a.json {
			o := readDescription(a.body)
			v.offers = &o
			return o
		}
	}
	v.offers = &offered{}
	return offered{}
}

var (
	resumePath    = regexp.MustCompile(`^/api/session/\{[^}]+\}/resume$`)
	syntheticPath = regexp.MustCompile(`^/api/session/\{[^}]+\}/synthetic$`)
)

// schema is the part of a JSON schema that we look at.
type schema struct {
	Ref        string                     `json:"$ref"`
	Properties map[string]json.RawMessage `json:"properties"`
}

// readDescription reads an OpenAPI document.
func readDescription(document []byte) offered {
	var doc struct {
		Paths map[string]struct {
			Post struct {
				RequestBody struct {
					Content map[string]struct {
						Schema schema `json:"schema"`
					} `json:"content"`
				} `json:"requestBody"`
			} `json:"post"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if json.Unmarshal(document, &doc) != nil {
		return offered{}
	}
	o := offered{described: len(doc.Paths) > 0}
	for path, operations := range doc.Paths {
		switch {
		case resumePath.MatchString(path):
			o.resume = true
		case syntheticPath.MatchString(path):
			body := operations.Post.RequestBody.Content["application/json"].Schema
			if name, ok := strings.CutPrefix(body.Ref, "#/components/schemas/"); ok {
				_ = json.Unmarshal(doc.Components.Schemas[name], &body) // what isn't there has no id
			}
			_, o.syntheticID = body.Properties["id"]
		}
	}
	return o
}

// arrived looks for the key; where there is none, a plain continuation may have
// been a resume, which has no key: only its execution tells.
func (v *v2) arrived(ctx context.Context, d restart.Delivery) (restart.Arrival, error) {
	there, err := v.hasMessage(ctx, d.Session, Key(d))
	switch {
	case err != nil:
		return restart.ArrivalUnknown, err
	case there:
		return restart.Arrived, nil
	case d.Text != "" || v.lacksResume():
		return restart.NotArrived, nil
	}
	if o := v.describe(ctx); o.described && !o.resume {
		return restart.NotArrived, nil
	}
	active, err := v.active(ctx)
	if err == nil && slices.Contains(active, d.Session) {
		return restart.Arrived, nil
	}
	return restart.ArrivalUnknown, err
}

// hasMessage looks among the messages that wait to be taken up, then among those
// that were: in this order none is missed that moves meanwhile. (Seen in the
// 2.0 preview of July 2026; a server without the first call has no such state.)
func (v *v2) hasMessage(ctx context.Context, session, key string) (bool, error) {
	var pending struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if _, err := v.wire.get(ctx, "ask what waits in the session", v.path(session, "pending"), &pending); err != nil {
		return false, err
	}
	for _, message := range pending.Data {
		if message.ID == key {
			return true, nil
		}
	}
	var message struct{}
	return v.wire.get(ctx, "look for the message", v.path(session, "message", key), &message)
}

func (v *v2) waiting(ctx context.Context, session, _ string) (string, error) {
	for _, list := range []struct{ call, what string }{
		{"permission", "permission"}, {"form", "question"}, {"question", "question"}, // form and question by version
	} {
		var said struct {
			Data []json.RawMessage `json:"data"`
		}
		if _, err := v.wire.get(ctx, "ask what the session waits for", v.path(session, list.call), &said); err != nil {
			return "", err
		}
		if len(said.Data) > 0 {
			return list.what, nil
		}
	}
	return "", nil
}

func (v *v2) session(ctx context.Context, id string) (*Session, error) {
	var said struct {
		Data struct {
			ID       string `json:"id"`
			ParentID string `json:"parentID"`
			Title    string `json:"title"`
			Location struct {
				Directory string `json:"directory"`
			} `json:"location"`
			Time struct {
				Archived float64 `json:"archived"`
			} `json:"time"`
		} `json:"data"`
	}
	found, err := v.wire.get(ctx, "ask for the session", v.path(id), &said)
	if err != nil || !found {
		return nil, err
	}
	s := said.Data
	return &Session{ID: s.ID, Title: s.Title, Directory: s.Location.Directory, Parent: s.ParentID, Archived: s.Time.Archived > 0}, nil
}

func (v *v2) interrupt(ctx context.Context, session string) error {
	said := struct {
		Interrupted bool `json:"interrupted"`
	}{true} // earlier ones answer nothing
	err := v.wire.post(ctx, "interrupt the session", v.path(session, "interrupt"), nil, &said)
	var answered *answeredError
	switch {
	case errors.As(err, &answered) && answered.tag == goneV2, err == nil && !said.Interrupted:
		return ErrIdle
	}
	return err
}

func (v *v2) quiesce(context.Context) error { return nil }

func (v *v2) unquiesce() {}

func (v *v2) stop(ctx context.Context) (bool, error) {
	var said struct {
		Accepted bool `json:"accepted"`
	}
	body := map[string]string{"instanceID": v.wire.inc.ID}
	err := v.wire.post(ctx, "ask the server to stop", "/api/service/stop", body, &said)
	return said.Accepted, err
}

func (v *v2) watch([]string) {}

func (v *v2) events() (string, time.Duration) { return "/api/event", 15 * time.Second }

func (v *v2) connected(context.Context) {}
