package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// host is the only Host that the API answers to: a browser that was led to the
// socket by some proxy names another.
const host = "intermission"

const (
	maxBody       = 64 << 10 // bytes of a request's body
	maxHeader     = 16 << 10 // bytes of a request's header
	readTimeout   = 10 * time.Second
	idleTimeout   = time.Minute
	shutdownGrace = 2 * time.Second
)

// Server answers the control API for one Backend.
type Server struct {
	backend     Backend
	log         *slog.Logger
	readTimeout time.Duration
	grace       time.Duration
}

// NewServer makes a server for backend. Serve starts it.
func NewServer(backend Backend, log *slog.Logger) *Server {
	return &Server{backend: backend, log: log, readTimeout: readTimeout, grace: shutdownGrace}
}

// Serve answers requests on l, which it closes, until ctx ends: then streams end,
// acts are cancelled, and calls in flight get two seconds to answer. It returns
// nil after such an end, and an error when l fails.
//
// An act (resume, dismiss, interrupt, start, stop, restart) goes on when its caller goes
// away, and ends only with ctx: what was consented to counts.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler:           s.guard(s.routes(ctx)),
		ReadHeaderTimeout: s.readTimeout,
		ReadTimeout:       s.readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	select {
	case err := <-served:
		_ = hs.Close()
		return fmt.Errorf("cannot serve the control API: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := hs.Shutdown(grace); err != nil {
		s.log.Warn("control: calls were cut off at shutdown", "err", err)
		_ = hs.Close()
	}
	<-served // http.ErrServerClosed
	return nil
}

func (s *Server) routes(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /v1/status", answer(s, func(r *http.Request) (Status, error) {
		st, err := s.backend.Status(r.Context())
		return fullStatus(st), err
	}))
	mux.Handle("GET /v1/pending", answer(s, func(r *http.Request) (Pending, error) {
		p, err := s.backend.Pending(r.Context())
		return Pending{Pending: fullSuspensions(p.Pending)}, err
	}))
	mux.Handle("GET /v1/sessions/{id}", answer(s, func(r *http.Request) (Detail, error) {
		d, err := s.backend.Show(r.Context(), r.PathValue("id"))
		d.Suspension, d.Journal = fullSuspension(d.Suspension), full(d.Journal)
		return d, err
	}))
	mux.Handle("POST /v1/sessions/{id}/resume", act(s, func(r *http.Request, b atBody) (Result, error) {
		return s.backend.Resume(ctx, r.PathValue("id"), b.At)
	}))
	mux.Handle("POST /v1/sessions/{id}/dismiss", act(s, func(r *http.Request, b atBody) (Dismissed, error) {
		return s.backend.Dismiss(ctx, r.PathValue("id"), b.At)
	}))
	mux.Handle("POST /v1/sessions/{id}/interrupt", act(s, func(r *http.Request, b atBody) (Interrupted, error) {
		return s.backend.Interrupt(ctx, r.PathValue("id"), b.At)
	}))
	mux.Handle("GET /v1/sessions/{id}/attach", answer(s, func(r *http.Request) (Attachment, error) {
		return s.backend.Attach(r.Context(), r.PathValue("id"))
	}))
	for name, f := range map[string]func(context.Context) (Status, error){
		"start": s.backend.StartServer, "stop": s.backend.StopServer, "restart": s.backend.RestartServer,
	} {
		mux.Handle("POST /v1/server/"+name, act(s, func(*http.Request, struct{}) (Status, error) {
			st, err := f(ctx)
			return fullStatus(st), err
		}))
	}
	mux.Handle("POST /v1/handover", act(s, func(r *http.Request, _ struct{}) (Ending, error) {
		return s.backend.HandOver(r.Context()) // who doesn't wait any more doesn't want it any more
	}))
	mux.Handle("POST /v1/leave", act(s, func(r *http.Request, _ struct{}) (Ending, error) {
		return s.backend.Leave(r.Context())
	}))
	mux.Handle("POST /v1/leave/check", act(s, func(r *http.Request, _ struct{}) (struct{}, error) {
		return struct{}{}, s.backend.MayLeave(r.Context())
	}))
	mux.HandleFunc("GET /v1/logs", s.logs)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &httpError{http.StatusNotFound, fmt.Sprintf("no such call: %s %s", r.Method, r.URL.Path)})
	})
	return mux
}

// atBody names one suspension, or one execution; 0 is the one of now.
type atBody struct {
	At int64 `json:"at"` // Unix milliseconds
}

// answer serves a call without a body.
func answer[T any](s *Server, call func(*http.Request) (T, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := call(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// act serves a call with a body of type B, that changes something.
func act[B, T any](s *Server, call func(*http.Request, B) (T, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body B
		if err := readBody(w, r, &body); err != nil {
			s.fail(w, r, err)
			return
		}
		v, err := call(r, body)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// readBody reads a JSON body strictly. An empty one leaves v as it is.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	// No form of a web page can send this type without asking first.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return &httpError{http.StatusUnsupportedMediaType, "the content type must be application/json"}
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, more := d.Token(); more == nil {
			err = errors.New("more than one value")
		} else if !errors.Is(more, io.EOF) {
			err = more
		}
	}
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return &httpError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	case err != nil:
		return &httpError{http.StatusBadRequest, "cannot read the body: " + err.Error()}
	}
	return nil
}

// guard refuses what doesn't come from our own client, and turns a panic into an answer.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &tracked{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
				panic(p)
			}
			s.log.Error("control: a call panicked", "call", r.Method+" "+r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if t.began {
				panic(http.ErrAbortHandler)
			}
			s.fail(t, r, errors.New("internal error; the log has its trace: intermission logs"))
		}()
		if r.Host != host || len(r.Header.Values("Origin")) > 0 {
			s.fail(t, r, &httpError{http.StatusForbidden, "only intermission's own programs are answered"})
			return
		}
		next.ServeHTTP(t, r)
	})
}

// tracked knows whether an answer has begun.
type tracked struct {
	http.ResponseWriter
	began bool
}

func (t *tracked) WriteHeader(status int) {
	t.began = true
	t.ResponseWriter.WriteHeader(status)
}

func (t *tracked) Write(b []byte) (int, error) {
	t.began = true
	return t.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (t *tracked) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// httpError is a request that the border itself refuses.
type httpError struct {
	status  int
	message string
}

func (e *httpError) Error() string { return e.message }

// errorBody is the body of every failure.
type errorBody struct {
	Error *Error `json:"error"`
}

// statuses gives each code its HTTP status. Callers decide by the code.
var statuses = map[string]int{
	CodeFailed:       http.StatusInternalServerError,
	CodeUsage:        http.StatusBadRequest,
	CodeNoSupervisor: http.StatusServiceUnavailable,
	CodeNotPending:   http.StatusNotFound,
	CodeAmbiguous:    http.StatusMultipleChoices,
	CodeRefused:      http.StatusConflict,
	CodeUnknown:      http.StatusGatewayTimeout,
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *httpError
	if errors.As(err, &refused) {
		writeJSON(w, refused.status, errorBody{&Error{Code: CodeUsage, Message: refused.message}})
		return
	}
	e := AsError(err)
	status, known := statuses[e.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	if e.Code == CodeFailed {
		s.log.Warn("control: a call failed", "call", r.Method+" "+r.URL.Path, "err", err)
	}
	writeJSON(w, status, errorBody{e})
}

// AsError gives err as the *Error that it is or wraps, and any other as CodeFailed.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeFailed, Message: err.Error()}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the caller went away: nobody is left to be told
}

func queryInt(r *http.Request, name string, absent int) (int, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return absent, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, &httpError{http.StatusBadRequest, fmt.Sprintf("%s: %q is not a number", name, v)}
	}
	return n, nil
}
