package opencode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const testPassword = "a-password-that-must-not-leak"

// serve starts a server that asks for the password, and gives an incarnation that is this process.
func serve(t *testing.T, generation Generation, handler http.HandlerFunc) Incarnation {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != Username || password != testPassword {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler(w, r)
	}))
	t.Cleanup(s.Close)
	return Incarnation{ID: "inc", Generation: generation, Version: "2.2.0", URL: s.URL, PID: os.Getpid(), Password: testPassword}
}

func sayJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func sayPage(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html")
	_, _ = io.WriteString(w, "<!doctype html>")
}

// listen starts a raw listener whose connections are given to handle.
func listen(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			handle(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

func TestHealth(t *testing.T) {
	t.Parallel()
	healthy := fmt.Sprintf(`{"healthy":true,"version":"2.2.0","pid":%d}`, os.Getpid())
	at := func(path string, status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				sayJSON(w, http.StatusNotFound, `{"_tag":"RouteNotFound"}`)
				return
			}
			sayJSON(w, status, body)
		}
	}
	for name, c := range map[string]struct {
		generation Generation
		handler    http.HandlerFunc
		want       HealthKind
	}{
		"v2":                           {V2, at("/api/health", 200, healthy), Healthy},
		"v2 newer":                     {V2, at("/api/info", 200, fmt.Sprintf(`{"version":"2.3.0","pid":%d,"urls":[],"paths":{}}`, os.Getpid())), Healthy},
		"v2 between":                   {V2, at("/api/status", 200, healthy), Healthy},
		"v2 another pid":               {V2, at("/api/health", 200, `{"healthy":true,"version":"2.2.0","pid":1}`), Stranger},
		"v2 no pid":                    {V2, at("/api/health", 200, `{"healthy":true,"version":"2.2.0"}`), Stranger},
		"v2 500 with a healthy body":   {V2, at("/api/health", 500, healthy), BootFailed},
		"v2 newer 500":                 {V2, at("/api/info", 500, healthy), BootFailed},
		"v2 503":                       {V2, at("/api/health", 503, healthy), Transition},
		"v2 200 that says not healthy": {V2, at("/api/health", 200, strings.Replace(healthy, "true", "false", 1)), Transition},
		"v2 asks a v1":                 {V2, func(w http.ResponseWriter, _ *http.Request) { sayPage(w) }, Stranger},
		"v2 has none":                  {V2, at("/nowhere", 200, healthy), Stranger},
		"v2 too long":                  {V2, at("/api/health", 200, strings.Repeat(" ", maxAnswer)+healthy), Stranger},
		"v1":                           {V1, at("/global/health", 200, `{"healthy":true,"version":"1.18.34"}`), Healthy},
		"v1 page":                      {V1, func(w http.ResponseWriter, _ *http.Request) { sayPage(w) }, Stranger},
		"v1 cut off":                   {V1, at("/global/health", 200, `{"healthy":true,`), Stranger},
		"redirect": {V1, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/global/health", http.StatusTemporaryRedirect)
		}, Stranger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantHealth(t, Health(t.Context(), serve(t, c.generation, c.handler)), c.want)
		})
	}
}

func wantHealth(t *testing.T, err error, want HealthKind) {
	t.Helper()
	got := Healthy
	var unwell *HealthError
	if errors.As(err, &unwell) {
		got = unwell.Kind
	} else if err != nil {
		t.Fatalf("got %v, want a HealthError", err)
	}
	if got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
	if err != nil && strings.Contains(err.Error(), testPassword) {
		t.Errorf("the password is in %q", err)
	}
}

func TestHealthOfWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	for name, c := range map[string]struct {
		url  string
		want HealthKind
	}{
		"nothing listens": {closed, NotListening},
		"silent":          {listen(t, func(net.Conn) {}), Silent},
		"hangs up":        {listen(t, func(c net.Conn) { _ = c.Close() }), Silent},
		"no HTTP": {listen(t, func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1024)) // first the request: what comes before it counts as a hang-up
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
		}), Stranger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			wantHealth(t, Health(t.Context(), Incarnation{Generation: V2, URL: c.url, PID: 1, Password: testPassword}), c.want)
			if took := time.Since(began); took > healthTimeout+time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestHealthRefusesTheWrongPassword(t *testing.T) {
	t.Parallel()
	inc := serve(t, V2, func(http.ResponseWriter, *http.Request) {})
	inc.Password = "another"
	wantHealth(t, Health(t.Context(), inc), Unauthorized)
}

func TestHealthUsesFreshConnections(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sayJSON(w, 200, `{"healthy":true,"version":"1.18.34"}`)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	for range 3 {
		wantHealth(t, Health(t.Context(), Incarnation{Generation: V1, URL: s.URL}), Healthy)
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("three checks used %d connections", n)
	}
}

func TestHealthEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	url := listen(t, func(net.Conn) { cancel() })
	if err := Health(ctx, Incarnation{Generation: V1, URL: url}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
