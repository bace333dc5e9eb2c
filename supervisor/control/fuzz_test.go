package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"intermission/restart"
)

// tape is a connection from who sends the same whatever is answered, and then hangs up.
type tape struct {
	sent   *bytes.Reader
	mu     sync.Mutex
	heard  bytes.Buffer
	closed chan struct{}
	close  func()
}

func newTape(sent []byte) *tape {
	c := &tape{sent: bytes.NewReader(sent), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

func (c *tape) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.Read(b)
}

func (c *tape) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard.Write(b)
}

func (c *tape) Close() error                   { c.close(); return nil }
func (c *tape) LocalAddr() net.Addr            { return &net.UnixAddr{} }
func (c *tape) RemoteAddr() net.Addr           { return &net.UnixAddr{} }
func (*tape) SetDeadline(time.Time) error      { return nil }
func (*tape) SetReadDeadline(time.Time) error  { return nil }
func (*tape) SetWriteDeadline(time.Time) error { return nil }

// acting is a backend that notes what it is asked for.
func acting(note func(act string)) *fake {
	act := func(verb string) func(context.Context, string, int64) error {
		return func(_ context.Context, id string, _ int64) error {
			note(verb)
			if id == "" {
				note("nobody")
			}
			return nil
		}
	}
	resume, dismiss, stop := act("resume"), act("dismiss"), act("interrupt")
	return &fake{
		status:  func(context.Context) (Status, error) { return Status{}, nil },
		pending: func(context.Context) (Pending, error) { return Pending{}, nil },
		show:    func(_ context.Context, id string) (Detail, error) { return Detail{Suspension: Suspension{ID: id}}, nil },
		resume: func(ctx context.Context, id string, at int64) (Result, error) {
			return Result{ID: id}, resume(ctx, id, at)
		},
		dismiss: func(ctx context.Context, id string, at int64) (Dismissed, error) {
			return Dismissed{ID: id}, dismiss(ctx, id, at)
		},
		stop: func(ctx context.Context, id string, at int64) (Interrupted, error) {
			return Interrupted{ID: id}, stop(ctx, id, at)
		},
		attach: func(context.Context, string) (Attachment, error) { return Attachment{}, nil },
		server: func(_ context.Context, verb string) (Status, error) { note(verb); return Status{}, nil },
		hand:   func(context.Context) (Ending, error) { note("end"); return Ending{}, nil },
		logs: func(_ context.Context, w io.Writer, _ int, _ bool) error {
			_, err := io.WriteString(w, "a line\n")
			return err
		},
		watch: func(_ context.Context, send func(Snapshot) error) error { return send(Snapshot{}) },
	}
}

// wireServer serves a backend to connections that are handed to it.
func wireServer(t testing.TB, b Backend) (call func(sent []byte) (heard []byte)) {
	t.Helper()
	l := newPipes()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- NewServer(b, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return func(sent []byte) []byte {
		c := newTape(sent)
		l.conns <- c
		<-c.closed
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.heard.Bytes()
	}
}

// asked gives the requests that are in what was sent, by the standard library's own reading.
func asked(sent []byte) (list []*http.Request) {
	in := bufio.NewReader(bytes.NewReader(sent))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return list
		}
		_, _ = io.Copy(io.Discard, r.Body)
		list = append(list, r)
	}
}

// FuzzRequests is whatever may come to the socket, from a browser too that was led there.
func FuzzRequests(f *testing.F) {
	const resume = "POST /v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"at\":1}"
	for _, text := range append(wiresOfOthers(),
		resume, resume+resume, strings.Replace(resume, "Content-Length: 8", "Transfer-Encoding: chunked", 1),
		strings.Replace(resume, "{\"at\":1}", "8\r\n{\"at\":1}\r\n0\r\n\r\n", 1), strings.Replace(resume, "ses_1", "..%2f..", 1), strings.Replace(resume, "ses_1", "%00", 1),
		"GET /v1/status HTTP/1.1\r\nHost: intermission\r\n\r\n", "GET /v1/logs?n=-1&follow=true HTTP/1.1\r\nHost: intermission\r\n\r\n",
		"GET /v1/events HTTP/1.1\r\nHost: intermission\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
		"POST /v1/server/stop HTTP/1.1\r\nHost: intermission\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: 0\r\n\r\n",
		"POST /v1/handover HTTP/1.1\r\nHost: intermission\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
	) {
		f.Add([]byte(text))
	}
	var mu sync.Mutex
	var acts []string
	call := wireServer(f, acting(func(act string) {
		mu.Lock()
		defer mu.Unlock()
		acts = append(acts, act)
	}))
	f.Fuzz(func(t *testing.T, sent []byte) {
		mu.Lock()
		acts = nil
		mu.Unlock()
		heard := call(sent)
		mu.Lock()
		defer mu.Unlock()
		may := 0
		for _, r := range asked(sent) {
			kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
			if r.Method == http.MethodPost && r.Host == host && len(r.Header.Values("Origin")) == 0 && kind == "application/json" {
				may++
			}
		}
		if len(acts) > may {
			t.Errorf("%d of what may act made it act: %q", may, acts)
		}
		checkAnswers(t, heard)
	})
}

// checkAnswers wants answers of ours alone, each of the form that it says.
func checkAnswers(t *testing.T, heard []byte) {
	t.Helper()
	for in := bufio.NewReader(bytes.NewReader(heard)); ; {
		if _, err := in.Peek(1); err != nil {
			return
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("an answer that is none: %v: %q", err, heard)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		kind := res.Header.Get("Content-Type")
		switch {
		case err != nil && kind != "text/event-stream" && kind != "text/plain; charset=utf-8":
			t.Errorf("an answer is cut off: %v: %q", err, heard)
		case res.StatusCode == http.StatusContinue:
		case res.StatusCode == http.StatusSwitchingProtocols:
			t.Errorf("it speaks another protocol: %q", heard)
		case kind == "application/json" && !json.Valid(body) && len(body) > 0: // no body is the answer to HEAD
			t.Errorf("an answer is no JSON: %q", heard)
		case res.Header.Get("Access-Control-Allow-Origin") != "" || res.Header.Get("Set-Cookie") != "":
			t.Errorf("an answer for browsers: %q", heard)
		}
	}
}

// wiresOfOthers are requests as nobody of ours sends them.
func wiresOfOthers() []string {
	const body = "Content-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"at\":1}"
	const call = "POST /v1/sessions/ses_1/resume HTTP/1.1\r\n"
	return []string{
		call + "Host: evil.example\r\n" + body,                       // a name that was made to mean this machine
		call + "Host: localhost\r\n" + body,                          // a proxy in between
		call + "Host: intermission.evil.example\r\n" + body,          // a beginning of ours
		call + "Host: intermission:80\r\n" + body,                    //
		call + "Host: INTERMISSION\r\n" + body,                       //
		call + "Host: intermission\r\nHost: evil.example\r\n" + body, // two
		call + body, // none
		"POST /v1/sessions/ses_1/resume HTTP/1.0\r\n" + body,                                          // none, as it may be there
		"POST http://evil.example/v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\n" + body, // the line counts more than the header
		call + "Host: intermission\r\nOrigin: http://evil.example\r\n" + body,
		call + "Host: intermission\r\nOrigin: null\r\n" + body,
		call + "Host: intermission\r\norigin:\r\n" + body,
		"GET /v1/events HTTP/1.1\r\nHost: intermission\r\nOrigin: http://evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		"OPTIONS /v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: intermission\r\n\r\n",
		"CONNECT intermission:80 HTTP/1.1\r\nHost: intermission\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET /v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\n\r\n",
		"POST /v1/sessions/ses_1/resume?at=1 HTTP/1.1\r\nHost: intermission\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 4\r\n\r\nat=1",
		"POST /v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 0\r\n\r\n",
		call + "Host: intermission\r\nContent-Length: 8\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n0\r\n\r\n{\"at\":1}",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // TLS
		"EHLO evil\r\n",
	}
}

// TestWhatOthersSendDoesNothing: none of it acts, and none is told what stands here.
func TestWhatOthersSendDoesNothing(t *testing.T) {
	t.Parallel()
	for _, sent := range wiresOfOthers() {
		var mu sync.Mutex
		var acts []string
		heard := wireServer(t, acting(func(act string) {
			mu.Lock()
			defer mu.Unlock()
			acts = append(acts, act)
		}))([]byte(sent))
		mu.Lock()
		if chunked := strings.Contains(sent, "chunked"); len(acts) > 0 && !chunked {
			t.Errorf("%q did %q", sent, acts)
		}
		mu.Unlock()
		if strings.HasPrefix(string(heard), "HTTP/1.1 2") && !strings.HasPrefix(sent, "OPTIONS *") && !strings.Contains(sent, "chunked") {
			t.Errorf("%q was answered: %q", sent, heard)
		}
		checkAnswers(t, heard)
	}
}

// TestInputsToTheSocketAreBounded sends without an end, in each place where something is read.
func TestInputsToTheSocketAreBounded(t *testing.T) {
	t.Parallel()
	const head = "POST /v1/sessions/ses_1/resume HTTP/1.1\r\nHost: intermission\r\nContent-Type: application/json\r\n"
	filler := strings.Repeat("x", 4<<20)
	for name, sent := range map[string]string{
		"request line":  "GET /" + filler,
		"a header":      head + "X: " + filler,
		"many headers":  head + strings.Repeat("X: y\r\n", 1<<20),
		"a length":      head + "Content-Length: 4194304\r\n\r\n{\"at\":" + filler,
		"chunks":        head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("4\r\n    \r\n", 1<<20),
		"chunk's words": head + "Transfer-Encoding: chunked\r\n\r\n4;" + filler,
		"nesting":       head + "Content-Length: 60000\r\n\r\n" + strings.Repeat("[", 60000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acts := 0
			c := newTape([]byte(sent))
			l := newPipes()
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() {
				served <- NewServer(acting(func(string) { acts++ }), slog.New(slog.DiscardHandler)).Serve(ctx, l)
			}()
			l.conns <- c
			<-c.closed
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
			if left := c.sent.Len(); acts > 0 || name != "nesting" && left < 3<<20 {
				t.Errorf("%d acts, %d bytes were read", acts, len(sent)-left)
			}
			if said := c.heard.String(); !strings.HasPrefix(said, "HTTP/1.1 4") || len(said) > 1000 {
				t.Errorf("it answers %.300q", said)
			}
		})
	}
}

// FuzzText renders answers that hold whatever a session may hold, for a terminal and as
// JSON: nothing in it steers the terminal, forges a line, or grows without bounds.
func FuzzText(f *testing.F) {
	for _, text := range []string{"a title", "rm_x && <b>y</b>\n\u202e😀", "\x1b]52;c;QQ==\x07", "\x1b]0;t\x1b\\", "\u009b31m", "\x9b31m", "\x1bPq\x1b\\", "a\x1b[", "\u2066\u200b\u200d", "\xff\xfe", "e\u0301\u0301", "\x7f\x00\r\n\u0085\u2028"} {
		f.Add(text, 0)
		f.Add(text+text, 7)
	}
	f.Fuzz(func(t *testing.T, text string, n int) {
		s := Suspension{
			ID: text, Title: text, Directory: text, Reason: text, WaitingFor: text, Children: []string{text, text}, Cause: restart.Cause(text), State: restart.State(text),
			Jobs: []Job{{text, text, text}}, LastPrompt: &restart.Prompt{Text: text}, LastTool: &restart.Tool{Name: text, Input: text, Status: text},
			SuspendedAt: int64(n), Resumes: n, ClaimedAt: int64(n), Attempts: n,
		}
		many := Pending{}
		for range n % 16 {
			many.Pending = append(many.Pending, s)
		}
		exit := &Exit{Code: n, Signal: text, Output: []string{text, text}}
		status := Status{
			Supervisor: SupervisorStatus{Version: text, Available: text},
			Server:     ServerStatus{State: text, Generation: text, Version: text, URL: text, Reason: text, Available: text, LastExit: exit},
			Sessions:   SessionStatus{Working: []Working{{ID: text, Title: text, WaitingFor: text}}},
		}
		detail := Detail{Suspension: s, Pending: n%2 == 0, Journal: []Entry{{What: text, Detail: text}}}
		plain := Text{Now: time.UnixMilli(1790000000000)}
		var lines, asJSON strings.Builder
		_, _ = io.WriteString(PlainLines(&lines), text+"\n")
		_, _ = io.WriteString(JSONLines(&asJSON), text+"\n")
		for name, said := range map[string]string{
			"pending": plain.Pending(many), "suspension": plain.Suspension(s), "show": plain.Detail(detail), "status": plain.Status(status),
			"result": plain.Result(Result{ID: text, Outcome: text, Reason: text}), "dismiss": plain.Dismissed(Dismissed{ID: text}),
			"interrupt": plain.Interrupted(Interrupted{ID: text}), "error": Message(&Error{Message: text}), "lines": lines.String(), "lines as JSON": asJSON.String(),
		} {
			fitForTerminal(t, name, said)
			if once := 4 * 64 * maxLogLine; len(said) > once*20 {
				t.Errorf("%s has %d bytes", name, len(said))
			}
		}
		for name, v := range map[string]any{"status": status, "detail": detail, "pending": many} {
			var b strings.Builder
			if err := WriteJSON(&b, v); err != nil {
				t.Fatal(err)
			}
			fitForTerminal(t, name+" as JSON", b.String())
			want, _ := json.Marshal(v)
			var a, c any
			if json.Unmarshal(want, &a) != nil || json.Unmarshal([]byte(b.String()), &c) != nil {
				t.Fatalf("%s is no JSON: %q", name, b.String())
			}
			again, _ := json.Marshal(c)
			before, _ := json.Marshal(a)
			if !bytes.Equal(again, before) {
				t.Errorf("%s as JSON means another thing: %q", name, b.String())
			}
		}
	})
}

// fitForTerminal checks what is printed: lines of characters that can be seen.
func fitForTerminal(t *testing.T, name, said string) {
	t.Helper()
	if !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) }) {
		t.Errorf("%s is %q", name, said)
	}
}
