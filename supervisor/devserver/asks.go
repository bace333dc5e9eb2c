package devserver

import (
	"context"
	"errors"
	"slices"
)

// ask is a question that a turn waits for. Like the real server's, it lives in memory only.
type ask struct {
	kind    string // permission, question, form: as the API's paths name it
	id      string
	session string
	body    data // as the API shows it
	answer  chan error
}

var errRejected = errors.New("rejected by the user")

func theQuestions() []data {
	return []data{{"question": "Which way?", "header": "Way", "options": []data{
		{"label": "left", "description": "The left one"}, {"label": "right", "description": "The right one"}}}}
}

func (s *server) askPermission(ctx context.Context, c *call) error {
	id := s.ids.next("per")
	body := data{"id": id, "sessionID": c.a.session.ID, "action": "shell", "resources": []string{"make clean"},
		"source": data{"type": "tool", "messageID": c.a.id, "callID": c.id}}
	return s.ask(ctx, c, &ask{kind: "permission", id: id, body: body}, "permission.v2.asked", body)
}

// askQuestion asks what the early kind calls a question, the claims kind a form.
func (s *server) askQuestion(ctx context.Context, c *call) error {
	if s.set.kind == early {
		id := s.ids.next("que")
		body := data{"id": id, "sessionID": c.a.session.ID, "questions": theQuestions(),
			"tool": data{"messageID": c.a.id, "callID": c.id}}
		return s.ask(ctx, c, &ask{kind: "question", id: id, body: body}, "question.v2.asked", body)
	}
	id := s.ids.next("frm")
	body := data{"id": id, "sessionID": c.a.session.ID, "title": "Which way?",
		"fields": []data{{"key": "way", "type": "string", "title": "Which way?"}}}
	return s.ask(ctx, c, &ask{kind: "form", id: id, body: body}, "form.created", data{"form": body})
}

// ask waits for an answer, or for the end of the turn.
func (s *server) ask(ctx context.Context, c *call, q *ask, event string, d data) error {
	q.session, q.answer = c.a.session.ID, make(chan error, 1)
	s.mu.Lock()
	s.asks = append(s.asks, q)
	s.mu.Unlock()
	s.live(c.a.session.Location.Directory, event, d)
	defer s.take(q.kind, q.session, q.id)
	select {
	case err := <-q.answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// asked lists what a session waits for.
func (s *server) asked(kind, session string) []data {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []data{}
	for _, q := range s.asks {
		if q.kind == kind && q.session == session {
			list = append(list, q.body)
		}
	}
	return list
}

// take removes an ask; nil when it isn't there any more.
func (s *server) take(kind, session, id string) *ask {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.asks, func(q *ask) bool { return q.kind == kind && q.session == session && q.id == id })
	if i < 0 {
		return nil
	}
	q := s.asks[i]
	s.asks = slices.Delete(s.asks, i, i+1)
	return q
}
