package devserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"intermission/restart/faultpoint"
)

// Why a turn is cut short.
var (
	errUser     = errors.New("interrupted by its user")
	errShutdown = errors.New("interrupted by the shutdown")
)

// providerError is a refusal of the provider: the turn fails.
type providerError struct{ kind, message string }

func (e *providerError) Error() string { return e.message }

func (e *providerError) data() data { return data{"type": e.kind, "message": e.message} }

// execution is one session at work: from started to its terminal event.
type execution struct {
	session string
	cause   string // what woke it: prompt, synthetic, resume, boot, job
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when it has settled
	again   bool          // an input came meanwhile
}

// wake makes a session execute, if it doesn't already. The execution is nil when the server stops.
func (s *server) wake(session, cause string) *execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if e := s.running[session]; e != nil {
		e.again = e.again || cause != "resume"
		return e
	}
	ctx, cancel := context.WithCancelCause(s.work)
	e := &execution{session: session, cause: cause, cancel: cancel, done: make(chan struct{})}
	s.running[session] = e
	s.background.Go(func() { s.execute(ctx, e) })
	return e
}

// interrupt ends the execution of a session as its user would, waits until it has
// settled, and tells whether there was one.
func (s *server) interrupt(session string) bool {
	s.mu.Lock()
	e := s.running[session]
	s.mu.Unlock()
	if e == nil {
		return false
	}
	e.cancel(errUser)
	<-e.done
	return true
}

// active gives the sessions that execute now.
func (s *server) active() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]string, 0, len(s.running))
	for id := range s.running {
		list = append(list, id)
	}
	return list
}

func (s *server) execute(ctx context.Context, e *execution) {
	err := s.turn(ctx, e)
	e.cancel(nil)
	s.mu.Lock()
	delete(s.running, e.session)
	again := e.again && !errors.Is(err, errUser)
	s.mu.Unlock()
	close(e.done)
	if !again {
		return
	}
	if waiting, err := s.waits(e.session); err == nil && waiting {
		s.wake(e.session, e.cause)
	}
}

// turn runs one execution, from its started event to its terminal one.
func (s *server) turn(ctx context.Context, e *execution) error {
	session, err := s.session(e.session)
	if err == nil {
		err = s.begin(session)
	}
	if err != nil {
		s.complain(err)
		return err
	}
	faultpoint.At(faultpoint.ServerClaimed)
	err = s.steps(ctx, e, session)
	faultpoint.At(faultpoint.ServerEnding)
	if endErr := s.end(session, err); endErr != nil {
		s.complain(endErr)
	}
	return err
}

// begin records that a turn is in flight. The claims kind claims the session in the same transaction.
func (s *server) begin(session sessionInfo) error {
	return s.record(func(r *recorder) error {
		if _, err := r.log(session.ID, "", "session.execution.started", data{}); err != nil {
			return err
		}
		if s.set.kind == claims {
			if _, err := r.Exec(`UPDATE session_v2 SET time_suspended = ? WHERE id = ?`, r.now, session.ID); err != nil {
				return err
			}
		}
		var known bool
		err := r.QueryRow(`SELECT count(*) > 0 FROM event WHERE aggregate_id = ? AND type = 'session.instructions.updated.2'`, session.ID).Scan(&known)
		if err != nil || known {
			return err
		}
		_, err = r.append(session.ID, frame{Type: "session.instructions.updated", Location: at(session.Location.Directory),
			Metadata: data{"instructions": data{"initial": true}}}, 2, data{"delta": data{"core/environment": strings.Repeat("0", 64)}})
		return err
	})
}

// end records how the turn ended. A terminal event clears the claim; a shutdown
// keeps it, and the early kind suspends the session then.
func (s *server) end(session sessionInfo, cause error) error {
	var refused *providerError
	event, d, clears := "session.execution.succeeded", data{}, true
	switch {
	case cause == nil:
	case errors.As(cause, &refused):
		event, d = "session.execution.failed", data{"error": refused.data()}
	case errors.Is(cause, errShutdown):
		event, d, clears = "session.execution.interrupted", data{"reason": "shutdown"}, false
	case errors.Is(cause, errUser):
		event, d = "session.execution.interrupted", data{"reason": "user"}
	default: // the database failed: what is written stands
		return cause
	}
	return s.record(func(r *recorder) error {
		if _, err := r.log(session.ID, "", event, d); err != nil {
			return err
		}
		var err error
		switch {
		case s.set.kind == claims && clears:
			_, err = r.Exec(`UPDATE session_v2 SET time_suspended = NULL, resume_attempts = 0 WHERE id = ?`, session.ID)
		case s.set.kind == early && !clears:
			_, err = r.Exec(`UPDATE session SET time_suspended = ? WHERE id = ?`, r.now, session.ID)
		}
		return err
	})
}

// steps runs what is left of the session's script, and what comes in meanwhile.
func (s *server) steps(ctx context.Context, e *execution, session sessionInfo) error {
	for {
		if err := s.promote(session); err != nil {
			return err
		}
		history, err := s.messages(session.ID, -1, false)
		if err != nil {
			return err
		}
		s.nameLater(session, history)
		for _, st := range plan(history, s.set.proceed, e.cause != "prompt") {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := s.countRequest(session.ID, e.cause); err != nil {
				return err
			}
			faultpoint.At(faultpoint.ServerRequested)
			if err := s.step(ctx, session, st); err != nil {
				return err
			}
		}
		if waiting, err := s.waits(session.ID); err != nil || !waiting {
			return err
		}
	}
}

// titleDelay is about what a title takes: it comes from a request of its own, beside the turn.
const titleDelay = 250 * time.Millisecond

// nameLater names a new session after its first prompt.
func (s *server) nameLater(session sessionInfo, history []message) {
	if len(history) == 0 || !strings.HasPrefix(session.Title, "New session - ") {
		return
	}
	text, _ := history[0]["text"].(string)
	s.background.Go(func() {
		if !s.pause(titleDelay) {
			return
		}
		if err := s.rename(session, titleOf(text)); err != nil {
			s.complain(err)
		}
	})
}

func (s *server) rename(session sessionInfo, title string) error {
	return s.record(func(r *recorder) error {
		res, err := r.Exec(r.store.sql(`UPDATE {session} SET title = ? WHERE id = ? AND title = ?`), title, session.ID, session.Title)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = r.log(session.ID, session.Location.Directory, "session.renamed", data{"title": title})
		return err
	})
}

// request is one line of the file that counts what reaches the provider.
type request struct {
	Session string `json:"session"`
	At      int64  `json:"at"`   // Unix milliseconds
	Kind    string `json:"kind"` // what woke the session: prompt, synthetic, resume, boot, job
}

// countRequest notes a request to the provider, before it is made.
func (s *server) countRequest(session, kind string) error {
	if s.set.requests == "" {
		return nil
	}
	line, err := json.Marshal(request{session, time.Now().UnixMilli(), kind})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(s.set.requests, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot count a request: %w", err)
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
