package control

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"intermission/platform"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Backend whose answers a test sets. Those that it doesn't set panic.
type fake struct {
	Backend
	status  func(context.Context) (Status, error)
	pending func(context.Context) (Pending, error)
	show    func(ctx context.Context, id string) (Detail, error)
	resume  func(ctx context.Context, id string, at int64) (Result, error)
	dismiss func(ctx context.Context, id string, at int64) (Dismissed, error)
	stop    func(ctx context.Context, id string, at int64) (Interrupted, error)
	attach  func(ctx context.Context, id string) (Attachment, error)
	server  func(ctx context.Context, verb string) (Status, error)
	hand    func(ctx context.Context) (Ending, error)
	logs    func(ctx context.Context, w io.Writer, n int, follow bool) error
	watch   func(ctx context.Context, send func(Snapshot) error) error
}

func (f *fake) Status(ctx context.Context) (Status, error)              { return f.status(ctx) }
func (f *fake) Pending(ctx context.Context) (Pending, error)            { return f.pending(ctx) }
func (f *fake) Show(ctx context.Context, id string) (Detail, error)     { return f.show(ctx, id) }
func (f *fake) StartServer(ctx context.Context) (Status, error)         { return f.server(ctx, "start") }
func (f *fake) StopServer(ctx context.Context) (Status, error)          { return f.server(ctx, "stop") }
func (f *fake) RestartServer(ctx context.Context) (Status, error)       { return f.server(ctx, "restart") }
func (f *fake) Watch(ctx context.Context, s func(Snapshot) error) error { return f.watch(ctx, s) }

func (f *fake) Resume(ctx context.Context, id string, at int64) (Result, error) {
	return f.resume(ctx, id, at)
}

func (f *fake) Dismiss(ctx context.Context, id string, at int64) (Dismissed, error) {
	return f.dismiss(ctx, id, at)
}

func (f *fake) Interrupt(ctx context.Context, id string, at int64) (Interrupted, error) {
	return f.stop(ctx, id, at)
}

func (f *fake) Attach(ctx context.Context, id string) (Attachment, error) { return f.attach(ctx, id) }

func (f *fake) HandOver(ctx context.Context) (Ending, error) { return f.hand(ctx) }
func (f *fake) MayLeave(context.Context) error               { return nil }
func (f *fake) Leave(ctx context.Context) (Ending, error)    { return f.hand(ctx) }

func (f *fake) Logs(ctx context.Context, w io.Writer, n int, follow bool) error {
	return f.logs(ctx, w, n, follow)
}

// bundle is a server on a real socket and its client.
type bundle struct {
	client   *Client
	path     string
	log      *logged
	shutdown func() error // ends the server, and returns what Serve returned
}

func setup(t *testing.T, b Backend) *bundle {
	t.Helper()
	path := socketPath(t)
	l, err := platform.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	out := &logged{}
	s := NewServer(b, slog.New(slog.NewTextHandler(out, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	shutdown := sync.OnceValue(func() error { cancel(); return <-served })
	client := Dial(path)
	t.Cleanup(func() {
		client.Close()
		if err := shutdown(); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return &bundle{client: client, path: path, log: out, shutdown: shutdown}
}

// socketPath is short enough for a socket, whatever the test's name.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// raw sends a request as no client of ours would.
func (b *bundle) raw(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	resp, err := b.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// logged keeps what was logged.
type logged struct {
	mu   sync.Mutex
	text []byte
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
