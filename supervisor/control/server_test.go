package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

func TestEveryCall(t *testing.T) {
	t.Parallel()
	status := Status{
		Supervisor: SupervisorStatus{PID: 7, Version: "1.0", Since: time.Unix(1790000000, 0).UTC()},
		Server:     ServerStatus{State: "running", Desired: "running", LastExit: &Exit{Signal: "killed", Output: []string{}}},
		Sessions:   SessionStatus{Active: []string{"ses_a"}, Working: []Working{{ID: "ses_a", Title: "t", Directory: "/d", StartedAt: 11, ProgressAt: 12}}, Pending: 1},
	}
	suspension := Suspension{
		ID: "ses_b", Title: "t", SuspendedAt: 12, Cause: restart.CauseCrash, State: restart.StatePending,
		LastTool: &restart.Tool{Name: "write", Status: "running"}, Children: []string{"ses_c"}, Jobs: []Job{{Kind: "shell"}},
	}
	detail := Detail{Suspension: suspension, Pending: true, Journal: []Entry{{What: "suspended"}}}
	attachment := Attachment{Argv: []string{"/bin/opencode", "attach"}, Dir: "/d", Env: map[string]string{"OPENCODE_SERVER_PASSWORD": "hush"}}
	var got []string
	note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	b := setup(t, &fake{
		status:  func(context.Context) (Status, error) { note("status"); return status, nil },
		pending: func(context.Context) (Pending, error) { note("pending"); return Pending{[]Suspension{suspension}}, nil },
		show:    func(_ context.Context, id string) (Detail, error) { note("show %s", id); return detail, nil },
		resume: func(_ context.Context, id string, at int64) (Result, error) {
			note("resume %s %d", id, at)
			return Result{ID: id, Outcome: "resumed"}, nil
		},
		dismiss: func(_ context.Context, id string, at int64) (Dismissed, error) {
			note("dismiss %s %d", id, at)
			return Dismissed{ID: id, Dismissed: 3}, nil
		},
		stop: func(_ context.Context, id string, at int64) (Interrupted, error) {
			note("interrupt %s %d", id, at)
			return Interrupted{id}, nil
		},
		attach: func(_ context.Context, id string) (Attachment, error) { note("attach %s", id); return attachment, nil },
		server: func(_ context.Context, verb string) (Status, error) { note("%s", verb); return status, nil },
		logs: func(_ context.Context, w io.Writer, n int, follow bool) error {
			note("logs %d %v", n, follow)
			_, err := io.WriteString(w, "one\ntwo\n")
			return err
		},
	})
	ctx := t.Context()
	odd := "ses/../x y?%" // an id is data, whatever stands in it
	for _, call := range []struct {
		want any
		do   func() (any, error)
	}{
		{status, func() (any, error) { return b.client.Status(ctx) }},
		{Pending{[]Suspension{suspension}}, func() (any, error) { return b.client.Pending(ctx) }},
		{detail, func() (any, error) { return b.client.Show(ctx, odd) }},
		{Result{ID: odd, Outcome: "resumed"}, func() (any, error) { return b.client.Resume(ctx, odd, 12) }},
		{Dismissed{ID: "ses_b", Dismissed: 3}, func() (any, error) { return b.client.Dismiss(ctx, "ses_b", 0) }},
		{Interrupted{"ses_a"}, func() (any, error) { return b.client.Interrupt(ctx, "ses_a", 11) }},
		{attachment, func() (any, error) { return b.client.Attach(ctx, odd) }},
		{status, func() (any, error) { return b.client.StartServer(ctx) }},
		{status, func() (any, error) { return b.client.StopServer(ctx) }},
		{status, func() (any, error) { return b.client.RestartServer(ctx) }},
		{"one\ntwo\n", func() (any, error) {
			var out strings.Builder
			err := b.client.Logs(ctx, &out, 5, false)
			return out.String(), err
		}},
	} {
		v, err := call.do()
		if err != nil {
			t.Errorf("after %v: %v", got, err)
		}
		if diff := cmp.Diff(call.want, v); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", got, diff)
		}
	}
	want := []string{
		"status", "pending", "show " + odd, "resume " + odd + " 12", "dismiss ses_b 0",
		"interrupt ses_a 11", "attach " + odd, "start", "stop", "restart", "logs 5 false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if said := fmt.Sprintf("%v %+v", attachment, &attachment); strings.Contains(said, "hush") {
		t.Errorf("the password is printed: %s", said)
	}
	if strings.Contains(b.log.String(), "hush") {
		t.Errorf("the password is logged: %s", b.log)
	}
}

// Scripts iterate over lists: none is an empty list, never null.
func TestListsAreNeverNull(t *testing.T) {
	t.Parallel()
	b := setup(t, &fake{
		status: func(context.Context) (Status, error) { return Status{Server: ServerStatus{LastExit: &Exit{}}}, nil },
		pending: func(context.Context) (Pending, error) {
			return Pending{[]Suspension{{ID: "a"}}}, nil
		},
		show: func(context.Context, string) (Detail, error) { return Detail{}, nil },
	})
	for _, path := range []string{"/v1/status", "/v1/pending", "/v1/sessions/a"} {
		_, body := b.raw(t, request(t, "GET", path, ""))
		if strings.Contains(body, "null") {
			t.Errorf("%s: %s", path, body)
		}
	}
}

func TestErrorsCrossTheBorder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err    error
		want   *Error
		status int
	}{
		{&Error{CodeUsage, "m"}, &Error{CodeUsage, "m"}, 400},
		{&Error{CodeAmbiguous, "m"}, &Error{CodeAmbiguous, "m"}, 300},
		{&Error{CodeNotPending, "m"}, &Error{CodeNotPending, "m"}, 404},
		{&Error{CodeRefused, "m"}, &Error{CodeRefused, "m"}, 409},
		{&Error{CodeUnknown, "m"}, &Error{CodeUnknown, "m"}, 504},
		{&Error{CodeNoSupervisor, "m"}, &Error{CodeNoSupervisor, "m"}, 503},
		{&Error{"new", "m"}, &Error{"new", "m"}, 500},
		{fmt.Errorf("w: %w", &Error{CodeRefused, "m"}), &Error{CodeRefused, "m"}, 409},
		{errors.New("disk full"), &Error{CodeFailed, "disk full"}, 500},
	} {
		t.Run(tc.err.Error()+" "+tc.want.Code, func(t *testing.T) {
			t.Parallel()
			b := setup(t, &fake{
				status: func(context.Context) (Status, error) { return Status{}, tc.err },
				resume: func(context.Context, string, int64) (Result, error) { return Result{}, tc.err },
				logs:   func(context.Context, io.Writer, int, bool) error { return tc.err },
			})
			_, read := b.client.Status(t.Context())
			_, acted := b.client.Resume(t.Context(), "ses_a", 1)
			streamed := b.client.Logs(t.Context(), io.Discard, 1, false)
			for _, err := range []error{read, acted, streamed} {
				var got *Error
				if !errors.As(err, &got) || *got != *tc.want {
					t.Errorf("got %#v, want %v", err, tc.want)
				}
			}
			if status, _ := b.raw(t, request(t, "GET", "/v1/status", "")); status != tc.status {
				t.Errorf("HTTP status %d, want %d", status, tc.status)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, &fake{}) // each call that got through would panic
	with := func(method, path, body string, change func(*http.Request)) *http.Request {
		r := request(t, method, path, body)
		change(r)
		return r
	}
	resume := "/v1/sessions/ses_a/resume"
	for name, tc := range map[string]struct {
		req  *http.Request
		want int
		says string
	}{
		"origin":           {with("GET", "/v1/status", "", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }), 403, "only intermission"},
		"empty origin":     {with("GET", "/v1/status", "", func(r *http.Request) { r.Header["Origin"] = []string{""} }), 403, "only intermission"},
		"other host":       {with("GET", "/v1/status", "", func(r *http.Request) { r.Host = "127.0.0.1" }), 403, "only intermission"},
		"form":             {with("POST", resume, `{"at":1}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), 415, "application/json"},
		"no type":          {with("POST", resume, `{"at":1}`, func(r *http.Request) { r.Header.Del("Content-Type") }), 415, "application/json"},
		"unknown field":    {request(t, "POST", resume, `{"at":1,"force":true}`), 400, "force"},
		"field for start":  {request(t, "POST", "/v1/server/start", `{"at":1}`), 400, "at"},
		"malformed":        {request(t, "POST", resume, `{"at":`), 400, "cannot read"},
		"wrong type":       {request(t, "POST", resume, `{"at":"1"}`), 400, "cannot read"},
		"two values":       {request(t, "POST", resume, `{"at":1}{"at":2}`), 400, "more than one"},
		"oversize":         {request(t, "POST", resume, `{"at":1`+strings.Repeat(" ", maxBody)+`}`), 413, "65536"},
		"oversize tail":    {request(t, "POST", resume, `{"at":1}`+strings.Repeat(" ", maxBody)), 413, "65536"},
		"unknown call":     {request(t, "GET", "/v2/status", ""), 404, "no such call: GET /v2/status"},
		"wrong method":     {request(t, "GET", resume, ""), 404, "no such call"},
		"resume by GET":    {request(t, "DELETE", "/v1/sessions/ses_a", ""), 404, "no such call"},
		"interrupt by GET": {request(t, "GET", "/v1/sessions/ses_a/interrupt", ""), 404, "no such call"},
		"bad number":       {request(t, "GET", "/v1/logs?n=x", ""), 400, "not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := b.raw(t, tc.req)
			if status != tc.want || !strings.Contains(body, tc.says) || !strings.HasPrefix(body, `{"error":{"code":"usage"`) {
				t.Errorf("got %d %s, want %d with %q", status, body, tc.want, tc.says)
			}
		})
	}
	if strings.Contains(b.log.String(), "panic") {
		t.Errorf("a refused request reached the backend:\n%s", b.log)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	t.Parallel()
	b := setup(t, &fake{
		status:  func(context.Context) (Status, error) { panic("lost the plot") },
		pending: func(context.Context) (Pending, error) { return Pending{}, nil },
		logs: func(_ context.Context, w io.Writer, _ int, _ bool) error {
			_, _ = io.WriteString(w, "one\n")
			panic("in the middle")
		},
	})
	_, err := b.client.Status(t.Context())
	if e := AsError(err); e.Code != CodeFailed || !strings.Contains(e.Message, "internal error") || strings.Contains(e.Message, "plot") {
		t.Errorf("got %v", err)
	}
	if err := b.client.Logs(t.Context(), io.Discard, 1, false); err == nil {
		t.Error("a stream that panicked ended as if it were whole")
	}
	for _, want := range []string{"lost the plot", "in the middle", "server_test.go"} {
		if !strings.Contains(b.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, b.log)
		}
	}
	if _, err := b.client.Pending(t.Context()); err != nil {
		t.Errorf("the server didn't outlive a panic: %v", err)
	}
}

func TestTwentyResumes(t *testing.T) {
	t.Parallel()
	var consumed atomic.Bool
	b := setup(t, &fake{resume: func(_ context.Context, id string, at int64) (Result, error) {
		if at == 12 && consumed.CompareAndSwap(false, true) {
			return Result{ID: id, Outcome: "resumed"}, nil
		}
		return Result{ID: id, Outcome: "already"}, nil
	}})
	outcomes := make(chan string, 20)
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() {
			c := Dial(b.path)
			defer c.Close()
			r, err := c.Resume(t.Context(), "ses_a", 12)
			if err != nil {
				r.Outcome = err.Error()
			}
			outcomes <- r.Outcome
		})
	}
	callers.Wait()
	close(outcomes)
	got := map[string]int{}
	for o := range outcomes {
		got[o]++
	}
	if diff := cmp.Diff(map[string]int{"resumed": 1, "already": 19}, got); diff != "" {
		t.Error(diff)
	}
}

// A consent that was given counts, also when the terminal that gave it is closed.
func TestActOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, ended := make(chan struct{}), make(chan error, 1)
		l := newPipes()
		s := NewServer(&fake{resume: func(ctx context.Context, id string, _ int64) (Result, error) {
			<-release
			ended <- ctx.Err()
			return Result{ID: id}, nil
		}}, slog.New(slog.DiscardHandler))
		serving, shutdown := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(serving, l) }()
		client := Dial("")
		client.http.Transport = transport(l.dial)

		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() {
			_, err := client.Resume(ctx, "ses_a", 1)
			returned <- err
		}()
		synctest.Wait() // the act is under way
		cancel()
		if err := <-returned; code(err) != CodeUnknown {
			t.Errorf("a cancelled resume: %v, want code unknown", err)
		}
		synctest.Wait() // the server knows that the caller is gone
		close(release)
		if err := <-ended; err != nil {
			t.Errorf("the act was cancelled with its caller: %v", err)
		}
		shutdown()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func TestServeFailsWithItsListener(t *testing.T) {
	t.Parallel()
	err := NewServer(&fake{}, slog.New(slog.DiscardHandler)).Serve(t.Context(), brokenListener{})
	if err == nil || !strings.Contains(err.Error(), "cannot serve the control API: broken") {
		t.Errorf("got %v", err)
	}
}

func request(t *testing.T, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}
