package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/platform"
)

type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("broken") }
func (brokenListener) Close() error              { return nil }

func snapshot(pending int) Snapshot {
	return Snapshot{
		Status:  Status{Sessions: SessionStatus{Active: []string{}, Working: []Working{}, Pending: pending}},
		Pending: []Suspension{}, Outcomes: []Outcome{},
	}
}

// A menu is told of a change, of nothing else, and of the end.
func TestWatch(t *testing.T) {
	t.Parallel()
	changes := make(chan Snapshot)
	b := setup(t, &fake{watch: func(ctx context.Context, send func(Snapshot) error) error {
		for {
			select {
			case s := <-changes:
				if err := send(s); err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}})
	seen := make(chan Snapshot, 10)
	ended := make(chan error, 1)
	go func() {
		ended <- b.client.Watch(t.Context(), func(s Snapshot) error { seen <- s; return nil })
	}()
	for _, n := range []int{1, 2} {
		changes <- snapshot(n)
		if diff := cmp.Diff(snapshot(n), <-seen); diff != "" {
			t.Error(diff)
		}
	}
	changes <- snapshot(2) // nothing changed
	changes <- snapshot(3)
	if got := <-seen; got.Status.Sessions.Pending != 3 {
		t.Errorf("an equal snapshot was sent again: %+v", got)
	}
	if err := b.shutdown(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Watch at the supervisor's shutdown: %v", err)
	}
}

// A snapshot of thousands of suspensions is one event like any other.
func TestWatchLargeSnapshot(t *testing.T) {
	t.Parallel()
	big := snapshot(2000)
	for i := range 2000 {
		big.Pending = append(big.Pending, Suspension{ID: fmt.Sprint("ses_", i), Title: "a title\nof two lines", Children: []string{}, Jobs: []Job{}})
	}
	b := setup(t, &fake{watch: func(ctx context.Context, send func(Snapshot) error) error { return send(big) }})
	var got []Snapshot
	err := b.client.Watch(t.Context(), func(s Snapshot) error { got = append(got, s); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Snapshot{big}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWatchEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	left := make(chan error, 1)
	b := setup(t, &fake{watch: func(ctx context.Context, send func(Snapshot) error) error {
		err := send(snapshot(1))
		<-ctx.Done()
		left <- err
		return ctx.Err()
	}})
	stop := errors.New("seen enough")
	if err := b.client.Watch(t.Context(), func(Snapshot) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	<-left // the backend is told by the connection's end, without a heartbeat
}

func TestWatchBreaks(t *testing.T) {
	t.Parallel()
	b := setup(t, &fake{watch: func(_ context.Context, send func(Snapshot) error) error {
		_ = send(snapshot(1))
		return errors.New("broken")
	}})
	if err := b.client.Watch(t.Context(), func(Snapshot) error { return nil }); code(err) != CodeFailed {
		t.Errorf("got %v", err)
	}
}

// code is that of err, "" for none.
func code(err error) string {
	if err == nil {
		return ""
	}
	return AsError(err).Code
}

// A reader that is slower than the changes holds nobody up, and gets the newest.
func TestNewestReplacesOlder(t *testing.T) {
	t.Parallel()
	c := make(chan Snapshot, 1)
	for n := range 100 {
		replace(c, snapshot(n))
	}
	if got := <-c; got.Status.Sessions.Pending != 99 {
		t.Errorf("got %+v", got)
	}
}

// The read timeout is for requests; it must not end what is answered slowly.
// (net/http lifts the deadline once a request is read.)
func TestStreamOutlivesReadTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		s := NewServer(&fake{watch: func(ctx context.Context, send func(Snapshot) error) error {
			time.Sleep(24 * time.Hour) // of the test's clock
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return send(snapshot(1))
		}}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		client := Dial("")
		client.http.Transport = transport(l.dial)
		seen := 0
		if err := client.Watch(t.Context(), func(Snapshot) error { seen++; return nil }); err != nil || seen != 1 {
			t.Errorf("after a day: %d snapshots, %v", seen, err)
		}
		client.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestFollowLogs(t *testing.T) {
	t.Parallel()
	lines := make(chan string)
	b := setup(t, &fake{logs: func(ctx context.Context, w io.Writer, _ int, _ bool) error {
		for {
			select {
			case l := <-lines:
				_, _ = io.WriteString(w, l)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}})
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- b.client.Logs(t.Context(), w, 0, true)
		_ = w.Close()
	}()
	for _, want := range []string{"one\n", "two\n"} {
		lines <- want
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if err := b.shutdown(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("a follow at the supervisor's shutdown: %v", err)
	}
}

// A reader that stopped reading, as a paused pager does, doesn't hold up the shutdown.
func TestShutdownCutsAStalledReader(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := platform.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	started := make(chan struct{})
	s := NewServer(&fake{logs: func(_ context.Context, w io.Writer, _ int, _ bool) error {
		close(started)
		line := make([]byte, 1<<20)
		for {
			if _, err := w.Write(line); err != nil {
				left <- err
				return err
			}
		}
	}}, slog.New(slog.DiscardHandler))
	s.grace = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	conn, err := platform.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/logs HTTP/1.1\r\nHost: intermission\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-started
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	<-left
}

func TestLogsBreak(t *testing.T) {
	t.Parallel()
	b := setup(t, &fake{logs: func(_ context.Context, w io.Writer, _ int, _ bool) error {
		_, _ = io.WriteString(w, "one\n")
		return errors.New("disk gone")
	}})
	if err := b.client.Logs(t.Context(), io.Discard, 1, false); code(err) != CodeFailed {
		t.Errorf("a broken log looks whole: %v", err)
	}
}

func TestNoSupervisor(t *testing.T) {
	t.Parallel()
	c := Dial(socketPath(t))
	_, err := c.Resume(t.Context(), "ses_a", 0)
	if e := AsError(err); e.Code != CodeNoSupervisor || e.Message != "no supervisor is running; start it with: intermission service start" {
		t.Errorf("got %+v", e)
	}
}

func TestSupervisorThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := platform.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := Dial(path)
	defer c.Close()
	c.answerTimeout = 20 * time.Millisecond
	if _, err := c.Status(t.Context()); code(err) != CodeFailed {
		t.Errorf("got %v", err)
	}
}

// Where the answer is lost, a consent may have counted.
func TestSupervisorDiesBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	path := socketPath(t)
	l, err := platform.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	}()
	c := Dial(path)
	if _, err := c.Resume(t.Context(), "ses_a", 1); code(err) != CodeUnknown {
		t.Errorf("resume: %v", err)
	}
	if _, err := c.Status(t.Context()); code(err) != CodeFailed {
		t.Errorf("status: %v", err)
	}
	_ = l.Close()
	<-done
}

func TestOddIDs(t *testing.T) {
	t.Parallel()
	c := Dial(socketPath(t))
	for _, id := range []string{"", ".", ".."} {
		if _, err := c.Show(t.Context(), id); code(err) != CodeUsage {
			t.Errorf("%q: %v", id, err)
		}
	}
}
