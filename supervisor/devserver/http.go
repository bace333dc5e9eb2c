package devserver

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"
)

const username = "opencode"

// bodyLimit bounds a request's body, in bytes.
const bodyLimit = 8 << 20

// route is one call of the API. claimsOnly marks what the recorded API of the early kind doesn't have.
type route struct {
	method, path string
	claimsOnly   bool
	handle       func(s *server, w http.ResponseWriter, r *http.Request) error
}

// routes is the whole API, but for readiness under its other two names.
var routes = []route{
	{"GET", "/api/event", false, (*server).getEvents},
	{"POST", "/api/service/stop", false, (*server).postStop},
	{"GET", "/api/session", false, (*server).getSessions},
	{"POST", "/api/session", false, (*server).postSession},
	{"GET", "/api/session/active", false, (*server).getActive},
	{"GET", "/api/session/{sessionID}", false, (*server).getSession},
	{"DELETE", "/api/session/{sessionID}", false, (*server).deleteSessionCall},
	{"POST", "/api/session/{sessionID}/prompt", false, (*server).postPrompt},
	{"POST", "/api/session/{sessionID}/synthetic", false, (*server).postSynthetic},
	{"POST", "/api/session/{sessionID}/resume", true, (*server).postResume},
	{"POST", "/api/session/{sessionID}/interrupt", false, (*server).postInterrupt},
	{"POST", "/api/session/{sessionID}/wait", false, (*server).postWait},
	{"GET", "/api/session/{sessionID}/message", false, (*server).getMessages},
	{"GET", "/api/session/{sessionID}/message/{messageID}", false, (*server).getMessage},
	{"GET", "/api/session/{sessionID}/context", false, (*server).getContext},
	{"GET", "/api/session/{sessionID}/permission", false, (*server).getPermissions},
	{"POST", "/api/session/{sessionID}/permission/{requestID}/reply", false, (*server).replyPermission},
	{"GET", "/api/session/{sessionID}/question", false, (*server).getQuestions},
	{"POST", "/api/session/{sessionID}/question/{requestID}/reply", false, (*server).replyQuestion},
	{"POST", "/api/session/{sessionID}/question/{requestID}/reject", false, (*server).rejectQuestion},
	{"GET", "/api/session/{sessionID}/form", false, (*server).getForms},
	{"POST", "/api/session/{sessionID}/form/{formID}/reply", false, (*server).replyForm},
	{"POST", "/api/session/{sessionID}/form/{formID}/cancel", false, (*server).cancelForm},
}

// apiError is an answer that is no success.
type apiError struct {
	status int
	body   data
}

func (e *apiError) Error() string { return fmt.Sprint(e.body["message"]) }

func refuse(status int, tag, message string) *apiError {
	return &apiError{status, data{"_tag": tag, "message": message}}
}

func invalid(message string) *apiError { return refuse(400, "InvalidRequestError", message) }

var errUnauthorized = refuse(401, "UnauthorizedError", "Authentication required")

// connKey leads to a request's connection in its context.
type connKey struct{}

// web is the HTTP server.
func (s *server) web() *http.Server {
	mux := http.NewServeMux()
	for _, rt := range routes {
		if rt.claimsOnly && s.set.kind == early {
			continue
		}
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			if err := s.awake(); err != nil {
				answerError(w, err)
				return
			}
			if err := rt.handle(s, w, r); err != nil {
				answerError(w, err)
			}
		})
	}
	mux.HandleFunc("GET /api/"+s.set.health, s.getHealth)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answerError(w, refuse(404, "NotFoundError", "no such route: "+r.Method+" "+r.URL.Path))
	})
	return &http.Server{
		Handler:           s.gate(mux),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // broken connections are no news here
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// gate lets in who knows the password.
func (s *server) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.set.faults.on("never-healthy") {
			select {
			case <-r.Context().Done():
			case <-s.work.Done():
			}
			dropConn(r) // a handler that merely returned would answer 200
			return
		}
		user, password, _ := r.BasicAuth()
		if user != username || subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="opencode"`)
			answerError(w, errUnauthorized)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
		next.ServeHTTP(w, r)
	})
}

// awake is an error unless the server is ready.
func (s *server) awake() error {
	switch phase(s.phase.Load()) {
	case ready:
		return nil
	case broken:
		return refuse(500, "UnknownError", "the server could not start")
	}
	return &apiError{503, data{"_tag": "ServiceUnavailableError", "message": "the server is starting or stopping"}}
}

// getHealth is readiness. Its body is that of a healthy server whatever the status.
func (s *server) getHealth(w http.ResponseWriter, _ *http.Request) {
	status := 200
	switch phase(s.phase.Load()) {
	case ready:
		s.store.yield()
	case broken:
		status = 500
	default:
		status = 503
	}
	switch {
	case s.set.faults.on("health-500"):
		status = 500
	case s.set.faults.on("health-401"):
		answerError(w, errUnauthorized)
		return
	}
	body := data{"healthy": true, "version": s.set.version, "pid": s.self.PID}
	if s.set.health == "info" {
		body = data{"version": s.set.version, "pid": s.self.PID, "urls": []string{s.self.URL}, "paths": data{}}
	}
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that went away is no news
}

func answerData(w http.ResponseWriter, body any) { answer(w, 200, data{"data": body}) }

func answerError(w http.ResponseWriter, err error) {
	var known *apiError
	var missing *notFoundError
	switch {
	case errors.As(err, &known):
	case errors.As(err, &missing):
		known = &apiError{404, data{"_tag": "SessionNotFoundError", "sessionID": missing.session, "message": missing.Error()}}
	case errors.Is(err, errConflict):
		known = refuse(409, "ConflictError", err.Error())
	default:
		known = refuse(500, "UnknownError", err.Error())
	}
	answer(w, known.status, known.body)
}

// decode reads a JSON body.
func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return invalid("cannot read the request: " + err.Error())
	}
	return nil
}

// postStop stops the server when the caller means this incarnation.
func (s *server) postStop(w http.ResponseWriter, r *http.Request) error {
	var body struct{ InstanceID string }
	if err := decode(r, &body); err != nil {
		return err
	}
	accepted := body.InstanceID == s.self.ID
	answer(w, 200, data{"accepted": accepted})
	if accepted && !s.set.faults.on("ignore-stop") {
		_ = http.NewResponseController(w).Flush()
		s.once.Do(func() { close(s.quit) })
	}
	return nil
}

// heartbeat is the time between two comments on an event stream.
const heartbeat = 15 * time.Second

func (s *server) getEvents(w http.ResponseWriter, r *http.Request) error {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	s.mu.Lock()
	if s.closed || c == nil {
		s.mu.Unlock()
		return s.awake()
	}
	s.streams[c] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, c)
		s.mu.Unlock()
	}()
	frames := s.events.subscribe()
	defer s.events.unsubscribe(frames)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w).Flush
	send := func(f frame) error {
		text, err := json.Marshal(f)
		if err == nil {
			_, err = fmt.Fprintf(w, "data: %s\n\n", text)
		}
		return errors.Join(err, flush())
	}
	if send(frame{ID: s.ids.next("evt"), Type: "server.connected", Data: json.RawMessage("{}")}) != nil {
		return nil
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case f, ok := <-frames:
			if !ok {
				return nil
			}
			err = send(f)
		case <-beat.C:
			_, err = io.WriteString(w, ": heartbeat\n\n")
			err = errors.Join(err, flush())
		case <-r.Context().Done():
			return nil
		}
		if err != nil {
			return nil // the client went away
		}
	}
}
