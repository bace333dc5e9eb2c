package opencode

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"intermission/restart"
)

// TestAnswersNobodyAskedForAreNotLogged: net/http writes them to package log, whose
// output is the journal of a service.
func TestAnswersNobodyAskedForAreNotLogged(t *testing.T) {
	t.Parallel()
	played(Incarnation{}, nil).close() // any wire will do
	kept, ok := log.Writer().(unasked)
	if !ok {
		t.Fatalf("package log writes to %T", log.Writer())
	}
	var out bytes.Buffer
	kept.out = &out
	l := log.New(kept, "", 0)
	l.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "a prompt", nil)
	l.Print("something else")
	if out.String() != "something else\n" {
		t.Errorf("logged %q", out.String())
	}
}

// TestRedirectionsAreNotFollowed sends every call to a server that points elsewhere:
// nobody there gets to see the password, or is asked at all.
func TestRedirectionsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, generation := range []Generation{V1, V2} {
			inc := serve(t, generation, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1)+r.URL.Path)
				sayJSON(w, status, `{}`)
			})
			c := Connect(inc)
			c.Watch("/d")
			ctx := t.Context()
			for what, call := range map[string]func() error{
				"health":    func() error { return Health(ctx, inc) },
				"active":    func() error { _, err := c.Active(ctx); return err },
				"deliver":   func() error { return c.Deliver(ctx, restart.Delivery{Session: "ses_1", Suspended: 7}) },
				"waiting":   func() error { _, err := c.Waiting(ctx, "ses_1", "/d"); return err },
				"session":   func() error { _, err := c.Session(ctx, "ses_1"); return err },
				"interrupt": func() error { return c.Interrupt(ctx, "ses_1") },
				"stream":    func() error { return c.stream(ctx, discard, func(context.Context) error { return nil }) },
			} {
				if err := call(); err == nil && !(what == "active" && generation == V1) { // a directory that can't be asked isn't loaded
					t.Errorf("%s, %s: a %d counts as done", generation, what, status)
				} else {
					shownError(t, err)
				}
			}
			c.Close()
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("followed %d times", n)
	}
}

// endless is a reader without an end, which counts what is taken of it.
type endless struct{ taken atomic.Int64 }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '1'
	}
	e.taken.Add(int64(len(b)))
	return len(b), nil
}

// TestHugeAnswers answers without an end, in several ways: it is an error, little of it
// is taken, and less kept.
func TestHugeAnswers(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, body *endless){
		"chunked": func(w http.ResponseWriter, body *endless) { _, _ = io.Copy(w, body) },
		"a length that it says": func(w http.ResponseWriter, body *endless) {
			w.Header().Set("Content-Length", "999999999999")
			_, _ = io.Copy(w, body)
		},
		"a gzip bomb": func(w http.ResponseWriter, body *endless) {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			_, _ = io.Copy(packed, io.LimitReader(body, 1<<30))
		},
		"a header": func(w http.ResponseWriter, body *endless) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			_, _ = io.Copy(c, body)
		},
		"many headers": func(w http.ResponseWriter, body *endless) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = fmt.Fprintf(c, "X-%d: y\r\n", body.taken.Add(10))
			}
		},
		"early answers": func(w http.ResponseWriter, body *endless) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			for err == nil {
				_, err = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
				body.taken.Add(40)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			body := &endless{}
			inc := serve(t, V2, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				answer(w, body)
			})
			c := Connect(inc)
			defer c.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := c.Active(t.Context())
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("it counts as an answer")
			}
			shownError(t, err)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*maxList {
				t.Errorf("%d MB were made of it", grown>>20)
			}
			if taken := body.taken.Load(); taken > 64<<20 { // buffers of the connection beside the bound
				t.Errorf("%d MB were taken", taken>>20)
			}
			if err := Health(t.Context(), inc); err == nil {
				t.Error("it counts as healthy")
			}
		})
	}
}

// TestSlowAnswers answers a byte a second, for ever: each call that is to be answered
// soon ends within its limit.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		drip := func(ctx context.Context, _, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			go func() {
				defer far.Close()
				said := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
				for {
					for _, b := range []byte(said) {
						time.Sleep(time.Second)
						if _, err := far.Write([]byte{b}); err != nil {
							return
						}
					}
					said = " "
				}
			}()
			return near, nil
		}
		for _, generation := range []Generation{V1, V2} {
			w := played(Incarnation{ID: "inc", Generation: generation, URL: "http://127.0.0.1:9", PID: 7, Password: testPassword}, nil)
			w.http.Transport.(*http.Transport).DialContext = drip
			c := &Client{wire: w, again: make(chan struct{}, 1), api: &v2{wire: w}}
			if generation == V1 {
				v := newV1(w)
				v.well = func(context.Context) bool { return true }
				v.watch([]string{"/d"})
				c.api = v
			}
			for what, call := range map[string]func(context.Context) error{
				"active":    func(ctx context.Context) error { _, err := c.Active(ctx); return err },
				"waiting":   func(ctx context.Context) error { _, err := c.Waiting(ctx, "ses_1", "/d"); return err },
				"session":   func(ctx context.Context) error { _, err := c.Session(ctx, "ses_1"); return err },
				"interrupt": func(ctx context.Context) error { return c.Interrupt(ctx, "ses_1") },
				"arrived": func(ctx context.Context) error {
					_, err := c.api.arrived(ctx, restart.Delivery{Session: "ses_1", Suspended: 7})
					return err
				},
			} {
				began := time.Now()
				if err := call(t.Context()); err == nil && !(what == "active" && generation == V1) { // what isn't loaded there executes nothing
					t.Errorf("%s, %s: %v", generation, what, err)
				}
				if took := time.Since(began); took > callTimeout {
					t.Errorf("%s, %s: it took %s", generation, what, took)
				}
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), healthTimeout)
			if err := w.health(ctx); err == nil || time.Since(began) > healthTimeout {
				t.Errorf("%s: health is %v after %s", generation, err, time.Since(began))
			}
			cancel()
			w.close()
		}
		time.Sleep(2 * time.Second) // who drips sees that it is over
	})
}
