package devserver

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// named reads the session that the path names.
func (s *server) named(r *http.Request) (sessionInfo, error) {
	return s.session(r.PathValue("sessionID"))
}

// limited reads limit and order of a list's query.
func limited(r *http.Request, fallback int, defaultOrder string) (limit int, ascending bool, err error) {
	query := r.URL.Query()
	limit = fallback
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return 0, false, invalid("limit is not a positive number")
		}
	}
	order := query.Get("order")
	if order == "" {
		order = defaultOrder
	}
	if order != "asc" && order != "desc" {
		return 0, false, invalid("order is neither asc nor desc")
	}
	return limit, order == "asc", nil
}

func (s *server) getSessions(w http.ResponseWriter, r *http.Request) error {
	limit, ascending, err := limited(r, 50, "desc")
	if err != nil {
		return err
	}
	var parent *string
	if query := r.URL.Query(); query.Has("parentID") {
		id := query.Get("parentID")
		if id == "null" {
			id = ""
		}
		parent = &id
	}
	list, err := s.listSessions(parent, r.URL.Query().Get("directory"), limit, ascending)
	if err != nil {
		return err
	}
	answer(w, 200, data{"data": list, "cursor": data{}})
	return nil
}

func (s *server) postSession(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		ID       string
		Location struct{ Directory string }
	}
	if err := decode(r, &body); err != nil {
		return err
	}
	if body.ID != "" && !strings.HasPrefix(body.ID, "ses_") {
		return invalid("id must begin with ses_")
	}
	if body.Location.Directory == "" {
		body.Location.Directory = s.set.home
	}
	info, err := s.createSession(body.ID, "", body.Location.Directory)
	if err != nil {
		return err
	}
	answerData(w, info)
	return nil
}

func (s *server) getActive(w http.ResponseWriter, _ *http.Request) error {
	s.store.yield()
	running := data{}
	for _, id := range s.active() {
		running[id] = data{"type": "running"}
	}
	answerData(w, running)
	return nil
}

func (s *server) getSession(w http.ResponseWriter, r *http.Request) error {
	info, err := s.named(r)
	if err != nil {
		return err
	}
	answerData(w, info)
	return nil
}

func (s *server) deleteSessionCall(w http.ResponseWriter, r *http.Request) error {
	if err := s.deleteSession(r.PathValue("sessionID")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// inputBody is the body of prompt and synthetic.
type inputBody struct {
	ID          string
	Text        *string
	Description string
	Metadata    map[string]any
	Delivery    string
	Resume      *bool // nil is true
}

func (s *server) postPrompt(w http.ResponseWriter, r *http.Request) error {
	return s.postInput(w, r, "user", "prompt", true)
}

// postSynthetic takes no id in the early kind: what is sent twice counts twice.
func (s *server) postSynthetic(w http.ResponseWriter, r *http.Request) error {
	return s.postInput(w, r, "synthetic", "synthetic", s.set.kind == claims)
}

func (s *server) postInput(w http.ResponseWriter, r *http.Request, inputType, cause string, takesID bool) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	var body inputBody
	if err := decode(r, &body); err != nil {
		return err
	}
	if body.Text == nil || body.ID != "" && !strings.HasPrefix(body.ID, "msg_") {
		return invalid("text is missing, or id does not begin with msg_")
	}
	if !takesID {
		body.ID = ""
	}
	return s.continuing(w, r, func() error {
		a, err := s.admit(session, input{ID: body.ID, Type: inputType, Text: *body.Text,
			Description: body.Description, Metadata: body.Metadata, Delivery: body.Delivery})
		if err != nil {
			return err
		}
		if body.Resume == nil || *body.Resume {
			waiting, err := s.waits(session.ID)
			if err != nil {
				return err
			}
			if waiting { // else this input was executed already
				s.wake(session.ID, cause)
			}
		}
		answerData(w, a)
		return nil
	})
}

// postResume goes on with a session as it is, and answers when that has settled.
func (s *server) postResume(w http.ResponseWriter, r *http.Request) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	return s.continuing(w, r, func() error {
		e := s.wake(session.ID, "resume")
		if e == nil {
			return refuse(503, "ServiceUnavailableError", "the server is stopping")
		}
		s.answerSettled(w, r, e)
		return nil
	})
}

// answerSettled answers when e has settled. A stop breaks the connection off instead.
func (s *server) answerSettled(w http.ResponseWriter, r *http.Request, e *execution) {
	select {
	case <-e.done:
	case <-r.Context().Done():
		return
	}
	if s.work.Err() != nil {
		dropConn(r)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// continuing is where a server that was told to fail, when it is asked to go on with a session, does.
func (s *server) continuing(w http.ResponseWriter, r *http.Request, accept func() error) error {
	f := s.set.faults
	switch {
	case f.on("resume-500"):
		return refuse(500, "UnknownError", "this server was told to fail")
	case f.on("resume-404"):
		return &notFoundError{r.PathValue("sessionID")}
	case f.on("drop-before"):
		dropConn(r)
		return nil
	}
	if after, ok := f.duration("crash-after-resume"); ok {
		time.AfterFunc(after, s.abort)
	}
	if f.on("drop-resume") {
		dropConn(r)
	}
	return accept()
}

// dropConn breaks the connection of a request off.
func dropConn(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		resetConn(c)
	}
}

func (s *server) postInterrupt(w http.ResponseWriter, r *http.Request) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	interrupted := s.interrupt(session.ID)
	if s.set.kind == claims {
		answer(w, 200, data{"interrupted": interrupted})
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
	return nil
}

// postWait answers when the turn in flight, if any, has settled.
func (s *server) postWait(w http.ResponseWriter, r *http.Request) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	e := s.running[session.ID]
	s.mu.Unlock()
	if e == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	s.answerSettled(w, r, e)
	return nil
}

func (s *server) getMessages(w http.ResponseWriter, r *http.Request) error {
	limit, ascending, err := limited(r, 50, "desc")
	if err != nil {
		return err
	}
	session, err := s.named(r)
	if err != nil {
		return err
	}
	list, err := s.messages(session.ID, limit, !ascending)
	if err != nil {
		return err
	}
	answer(w, 200, data{"data": list, "cursor": data{}})
	return nil
}

func (s *server) getContext(w http.ResponseWriter, r *http.Request) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	list, err := s.messages(session.ID, -1, false)
	if err != nil {
		return err
	}
	answerData(w, list)
	return nil
}

func (s *server) getMessage(w http.ResponseWriter, r *http.Request) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	id := r.PathValue("messageID")
	m, err := s.message(session.ID, id)
	if err != nil {
		return err
	}
	if m == nil {
		return &apiError{404, data{"_tag": "MessageNotFoundError", "sessionID": session.ID, "messageID": id, "message": "Message not found: " + id}}
	}
	answerData(w, m)
	return nil
}

func (s *server) getPermissions(w http.ResponseWriter, r *http.Request) error {
	return s.getAsked(w, r, "permission")
}

func (s *server) getQuestions(w http.ResponseWriter, r *http.Request) error {
	return s.getAsked(w, r, "question")
}

func (s *server) getForms(w http.ResponseWriter, r *http.Request) error {
	return s.getAsked(w, r, "form")
}

func (s *server) getAsked(w http.ResponseWriter, r *http.Request, kind string) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	answerData(w, s.asked(kind, session.ID))
	return nil
}

func (s *server) replyPermission(w http.ResponseWriter, r *http.Request) error {
	var body struct{ Reply string }
	if err := decode(r, &body); err != nil {
		return err
	}
	id := r.PathValue("requestID")
	var verdict error
	switch body.Reply {
	case "once", "always":
	case "reject":
		verdict = errRejected
	default:
		return invalid("reply is none of once, always, reject")
	}
	return s.settle(w, r, "permission", id, verdict, "permission.v2.replied", data{"requestID": id, "reply": body.Reply})
}

func (s *server) replyQuestion(w http.ResponseWriter, r *http.Request) error {
	var body struct{ Answers [][]string }
	if err := decode(r, &body); err != nil {
		return err
	}
	id := r.PathValue("requestID")
	return s.settle(w, r, "question", id, nil, "question.v2.replied", data{"requestID": id, "answers": body.Answers})
}

func (s *server) rejectQuestion(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("requestID")
	return s.settle(w, r, "question", id, errRejected, "question.v2.rejected", data{"requestID": id})
}

func (s *server) replyForm(w http.ResponseWriter, r *http.Request) error {
	var body struct{ Answer map[string]any }
	if err := decode(r, &body); err != nil {
		return err
	}
	id := r.PathValue("formID")
	return s.settle(w, r, "form", id, nil, "form.replied", data{"id": id, "answer": body.Answer})
}

func (s *server) cancelForm(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("formID")
	return s.settle(w, r, "form", id, errRejected, "form.cancelled", data{"id": id})
}

// settle hands an answer to the turn that waits for it.
func (s *server) settle(w http.ResponseWriter, r *http.Request, kind, id string, verdict error, event string, d data) error {
	session, err := s.named(r)
	if err != nil {
		return err
	}
	q := s.take(kind, session.ID, id)
	if q == nil {
		missing := data{"message": "not found: " + id}
		switch kind {
		case "permission":
			missing["_tag"], missing["requestID"] = "PermissionNotFoundError", id
		case "question":
			missing["_tag"], missing["requestID"] = "QuestionNotFoundError", id
		case "form":
			missing["_tag"], missing["id"] = "FormNotFoundError", id
		}
		return &apiError{404, missing}
	}
	d["sessionID"] = session.ID
	s.live(session.Location.Directory, event, d)
	q.answer <- verdict
	w.WriteHeader(http.StatusNoContent)
	return nil
}
