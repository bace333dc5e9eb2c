package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"intermission/platform"
	"intermission/restart"
)

const (
	maxAnswer   = 1 << 20  // bytes of an ordinary answer
	maxList     = 16 << 20 // of a list
	maxHeader   = 64 << 10 // of an answer's header
	maxSaid     = 300      // graphemes of what an error quotes
	callTimeout = 10 * time.Second
)

// errTooLong says that an answer was longer than its bound.
var errTooLong = errors.New("the answer is too long")

// wire sends requests to one incarnation.
type wire struct {
	inc  Incarnation
	http *http.Client
}

// newTransport has no proxy, since the server is on this machine and the
// password is not for others, and keeps few connections, which costs the server least.
func newTransport() *http.Transport {
	keepUnasked()
	return &http.Transport{
		DialContext:           dial,
		MaxIdleConns:          4,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second,
		ResponseHeaderTimeout: 0, // v2's resume answers when the execution has settled

		MaxResponseHeaderBytes: maxHeader,
	}
}

// dial connects to a server that runs as us. Each request carries the password, which v2
// keeps over restarts: nobody gets it who has taken the port of a server that has ended,
// or that is ending and listens no more.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: healthTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if err := platform.CheckListener(conn.RemoteAddr()); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// unasked is a writer for package log that leaves out what net/http writes there of
// answers that nobody asked for, word for word: a service's standard error goes to the
// system's journal, which has other readers.
type unasked struct{ out io.Writer }

func (u unasked) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("Unsolicited response")) { // http.Transport has no log of its own
		return len(line), nil
	}
	return u.out.Write(line)
}

var keepUnasked = sync.OnceFunc(func() { log.SetOutput(unasked{log.Writer()}) })

// heardError is an error whose text may quote what was answered, by whoever it was:
// a header that can't be read, a number of a megabyte. said is fit to be shown.
type heardError struct {
	said string
	err  error
}

func (e *heardError) Error() string { return e.said }
func (e *heardError) Unwrap() error { return e.err }

// heard makes err's own text one short line, without what our credentials are: who
// answers at that port may send back what we sent.
func (w *wire) heard(err error) error {
	if err == nil {
		return nil
	}
	if outer, ok := err.(*url.Error); ok { //nolint:errorlint // its own text quotes nothing of the answer, what is in it may
		outer.Err = w.heard(outer.Err)
		return outer
	}
	return &heardError{w.quote(err.Error()), err}
}

// quote is what may be shown of something that the server said.
func (w *wire) quote(said string) string {
	return restart.PlainText(w.inc.withoutSecrets(said), maxSaid)
}

// noRedirect hands a redirection back as the answer: OpenCode sends none, and
// following one would carry the password elsewhere.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newWire(inc Incarnation) *wire {
	return &wire{inc: inc, http: &http.Client{Transport: newTransport(), CheckRedirect: noRedirect}}
}

func (w *wire) close() { w.http.CloseIdleConnections() }

// answer is what the server said.
type answer struct {
	status int
	json   bool // by its content type
	body   []byte
	of     Incarnation // that was asked
}

// good tells whether the server did what it was asked. v1 answers 200 with a
// web page on paths that it doesn't know.
func (a answer) good() bool {
	return a.status == http.StatusNoContent || a.status >= 200 && a.status < 300 && (a.json || len(a.body) == 0)
}

// tag is the server's own name of an error: _tag on v2, name on v1.
func (a answer) tag() string {
	var said struct {
		Tag  string `json:"_tag"`
		Name string `json:"name"`
	}
	_ = json.Unmarshal(a.body, &said) // an error without a name has none
	if said.Tag != "" {
		return said.Tag
	}
	return said.Name
}

// maxTag is how many graphemes of the server's name of an error are shown.
const maxTag = 80

// failure describes an answer that isn't good, in a few words.
func (a answer) failure(what string) error {
	if a.status >= 200 && a.status < 300 {
		return fmt.Errorf("cannot %s: the server has no such call", what)
	}
	return &answeredError{what, a.status, a.of.withoutSecrets(a.tag())}
}

// answeredError is an answer that says no.
type answeredError struct {
	what   string // that can't be done
	status int
	tag    string // the server's name of the error; may be empty
}

func (e *answeredError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("cannot %s: the server answered %d %s", e.what, e.status, restart.PlainText(e.tag, maxTag)))
}

// unsentError is a failure before anything of the request was written.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// request makes a request with the credentials in place.
func (w *wire) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, w.inc.URL+path, content)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(Username, w.inc.Password)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// call sends one request and reads at most limit bytes of the answer. It has no
// time limit but ctx's. A failure before a connection was had is an *unsentError.
func (w *wire) call(ctx context.Context, method, path string, body any, limit int64) (answer, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := w.request(ctx, method, path, body)
	if err != nil {
		return answer{}, &unsentError{err}
	}
	res, err := w.http.Do(req)
	if err != nil {
		err = w.heard(err)
		if !connected {
			return answer{}, &unsentError{err}
		}
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return answer{}, w.heard(err)
	}
	if int64(len(text)) > limit {
		return answer{}, errTooLong
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return answer{res.StatusCode, kind == "application/json" || strings.HasSuffix(kind, "+json"), text, w.inc}, nil
}

// get reads a JSON answer into out, within 10 s. found is false for a 404.
func (w *wire) get(ctx context.Context, what, path string, out any) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := w.call(ctx, http.MethodGet, path, nil, maxList)
	switch {
	case err != nil:
		return false, fmt.Errorf("cannot %s: %w", what, err)
	case a.status == http.StatusNotFound:
		return false, nil
	case !a.good() || !a.json:
		return false, a.failure(what)
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return false, fmt.Errorf("cannot %s: the answer has another form: %w", what, w.heard(err))
	}
	return true, nil
}

// post sends a command that is answered soon, within 10 s, and reads a JSON
// answer into out unless out is nil.
func (w *wire) post(ctx context.Context, what, path string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	a, err := w.call(ctx, http.MethodPost, path, body, maxAnswer)
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	if !a.good() {
		return a.failure(what)
	}
	if out == nil || len(a.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.body, out); err != nil {
		return fmt.Errorf("cannot %s: the answer has another form: %w", what, w.heard(err))
	}
	return nil
}
