package opencode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"intermission/restart"
)

// tape is a connection to who says the same whatever is asked, and then hangs up.
type tape struct{ said *bytes.Reader }

func (c tape) Read(b []byte) (int, error)       { return c.said.Read(b) }
func (c tape) Write(b []byte) (int, error)      { return len(b), nil }
func (c tape) Close() error                     { return nil }
func (c tape) LocalAddr() net.Addr              { return &net.UnixAddr{} }
func (c tape) RemoteAddr() net.Addr             { return &net.UnixAddr{} }
func (c tape) SetDeadline(time.Time) error      { return nil }
func (c tape) SetReadDeadline(time.Time) error  { return nil }
func (c tape) SetWriteDeadline(time.Time) error { return nil }

// played is a wire to who answers each connection with these bytes.
func played(inc Incarnation, said []byte) *wire {
	transport := newTransport()
	transport.DisableKeepAlives = true
	transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return tape{bytes.NewReader(said)}, nil }
	return &wire{inc: inc, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}}
}

// wireAnswer is an answer as it is sent.
func wireAnswer(status int, kind, body string) []byte {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	var b bytes.Buffer
	_ = w.Result().Write(&b)
	return b.Bytes()
}

// echoed stands in an input for the credentials that were sent.
const echoed = "@SENT@"

// FuzzAnswers hears what anybody may answer at the server's port.
func FuzzAnswers(f *testing.F) {
	pid := strconv.Itoa(os.Getpid())
	for _, body := range []string{
		`{"healthy":true,"version":"2.2.0","pid":` + pid + `}`, `{"version":"2.2.0","pid":1,"urls":[],"paths":{}}`, `{"healthy":false,"version":"2","pid":` + pid + `}`,
		`{"data":{"ses_dd32f2626ffeTcpuq68SUXDbf4":{"type":"running"}}}`, `{"data":{}}`, `{"data":null}`, `{}`, `null`, `true`, `[]`, ``,
		`{"ses_1":{"type":"busy"},"ses_2":{"type":"idle"}}`, `{"data":{"id":"ses_1","title":"t","location":{"directory":"/d"},"time":{"archived":1}}}`,
		`{"_tag":"SessionNotFoundError"}`, `{"_tag":"ConflictError"}`, `{"name":"NotFoundError","data":{"message":"m"}}`, `{"_tag":"\u001b]52;c;` + echoed + `\u0007"}`, `{"_tag":"bad ` + echoed + `"}`,
		`{"accepted":true}`, `{"interrupted":false}`, `[{"sessionID":"ses_1"}]`, `{"data":[{"id":"msg_1"}]}`,
		`{"healthy":true,"version":"1","pid":` + strings.Repeat("9", 500) + `}`, `{"data":` + strings.Repeat("[", 200),
		`{"paths":{"/api/session/{sessionID}/resume":{},"/api/session/{id}/synthetic":{"post":{"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/S"}}}}}}},"components":{"schemas":{"S":{"properties":{"id":{}}}}}}`,
	} {
		for _, status := range []int{200, 204, 404, 409, 500, 503} {
			f.Add(wireAnswer(status, "application/json", body))
		}
		f.Add(wireAnswer(200, "text/html", body))
	}
	for _, text := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\n{}", "SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 200 OK\r\n\x1b]0;" + echoed + "\x07\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\n{}\r\n0\r\n" + echoed + "\x1b\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 401 Unauthorized\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n\x1f\x8b", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 9999 " + echoed + "\r\n\r\n", "HTTP/1.1 " + echoed + " OK\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		sent := base64.StdEncoding.EncodeToString([]byte(Username + ":" + testPassword))
		said = bytes.ReplaceAll(said, []byte(echoed), []byte(testPassword+" "+sent))
		if bytes.HasPrefix(said, []byte("HTTP/1.1 1")) && bytes.Count(said, []byte("HTTP/1.1 1")) > 8 {
			return // what comes before an answer is bounded by its bytes
		}
		for _, generation := range []Generation{V1, V2} {
			hear(t, generation, said)
		}
	})
}

// heardAnswer is what was said, by the standard library's own reading: ok where it is an answer at all.
func heardAnswer(said []byte) (status int, isJSON bool, body []byte, ok bool) {
	in := bufio.NewReader(bytes.NewReader(said))
	for {
		res, err := http.ReadResponse(in, nil) //nolint:bodyclose // it holds nothing
		if err != nil {
			return 0, false, nil, false
		}
		if res.StatusCode/100 == 1 && res.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(res.Body)
		kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
		isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
		return res.StatusCode, isJSON, body, err == nil
	}
}

func hear(t *testing.T, generation Generation, said []byte) {
	t.Helper()
	inc := Incarnation{ID: "inc", Generation: generation, URL: "http://127.0.0.1:9", PID: os.Getpid(), Password: testPassword}
	w := played(inc, said)
	defer w.close()
	c := &Client{Text: ContinueText, wire: w, again: make(chan struct{}, 1)}
	if c.api = (&v2{wire: w}); generation == V1 {
		v := newV1(w)
		v.well = func(context.Context) bool { return true }
		v.watch([]string{"/d"})
		c.api = v
	}
	ctx := t.Context()
	status, isJSON, body, ok := heardAnswer(said)
	good := ok && status/100 == 2 && isJSON
	d := restart.Delivery{Session: "ses_1", Suspended: 1790000000000, Directory: "/d"}

	err := w.health(ctx)
	shownError(t, err)
	var unwell *HealthError
	var page struct {
		Healthy *bool
		Version string
		PID     int
	}
	sound := json.Unmarshal(body, &page) == nil && page.Version != "" && (page.Healthy == nil || *page.Healthy) && (generation == V1 || page.PID == os.Getpid())
	if healthy := ok && status == http.StatusOK && isJSON && sound; err == nil && !healthy || err != nil && !errors.As(err, &unwell) {
		t.Errorf("%s: healthy: %v, by %q", generation, err, said)
	}

	active, err := c.Active(ctx)
	shownError(t, err)
	if err == nil && generation == V2 && !good || len(active) > len(body) || !slices.IsSorted(active) {
		t.Errorf("%s: active is %q, %v, by %q", generation, active, err, said)
	}

	err = c.Deliver(ctx, d)
	shownError(t, err)
	empty := ok && status/100 == 2 && len(body) == 0
	exists := ok && status == http.StatusConflict // our key is there already
	if err == nil && !good && !empty && !exists {
		t.Errorf("%s: delivered, by %q", generation, said)
	}
	var refused *restart.RefusedError
	if errors.As(err, &refused) && refused.Gone && status != http.StatusNotFound {
		t.Errorf("%s: the session is gone, by %q", generation, said)
	}
	if errors.As(err, &refused) && (!ok || status >= 500) {
		t.Errorf("%s: surely not delivered, by %q", generation, said) // it may have been
	}

	arrival, err := c.api.arrived(ctx, d)
	shownError(t, err)
	if arrival == restart.Arrived && !good || arrival == restart.NotArrived && !good && !(ok && status == http.StatusNotFound) {
		t.Errorf("%s: arrival %v, %v, by %q", generation, arrival, err, said)
	}

	waiting, err := c.Waiting(ctx, "ses_1", "/d")
	shownError(t, err)
	if !slices.Contains([]string{"", "permission", "question"}, waiting) || waiting != "" && !good {
		t.Errorf("%s: waits for %q, by %q", generation, waiting, said)
	}

	s, err := c.Session(ctx, "ses_1")
	shownError(t, err)
	if s != nil && !good || s == nil && err == nil && status != http.StatusNotFound {
		t.Errorf("%s: session %+v, %v, by %q", generation, s, err, said)
	}

	accepted, err := c.Stop(ctx)
	shownError(t, err)
	if accepted && (generation == V1 || !good) {
		t.Errorf("%s: stops, by %q", generation, said)
	}
	shownError(t, c.Interrupt(ctx, "ses_1"))
	shownError(t, c.Quiesce(ctx))
	err = c.stream(ctx, func(restart.Event) {}, func(context.Context) error { return io.EOF })
	if errors.Is(err, io.EOF) && !(ok || status == 0) {
		t.Errorf("%s: a stream, by %q", generation, said)
	}
}
