package supervisor

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/restart"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// nothing is the database of a server of v1, which resumes nothing by itself.
type nothing struct{ restart.Database }

func (nothing) Sweep(context.Context) (restart.Sweep, error)      { return restart.Sweep{}, nil }
func (nothing) InFlight(context.Context, int64) ([]string, error) { return nil, nil }
func (nothing) Describe(context.Context, []string) (map[string]restart.Description, error) {
	return nil, nil
}

func (nothing) Fates(_ context.Context, ids []string) (map[string]restart.Fate, error) {
	fates := map[string]restart.Fate{}
	for _, id := range ids {
		fates[id] = restart.Fate{Outcome: restart.OutcomeUnknown}
	}
	return fates, nil
}

// An interrupt that is under way when v1 is being stopped: one that fails has
// interrupted nothing, and the session waits for consent; one that is accepted leaves
// nothing that waits, whichever comes first, the answer or the end of the turn.
func TestAnInterruptUnderWayAtTheStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		accepted   bool
		endedFirst bool // the turn ends before the answer comes
	}{
		"fails, then the turn ends":       {false, false},
		"the turn ends, then it fails":    {false, true},
		"accepted, then the turn ends":    {true, false},
		"the turn ends, then it is taken": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const id = "ses_1"
			called, answer := make(chan struct{}), make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				said := map[string]any{
					"/session/status": map[string]any{id: map[string]string{"type": "busy"}},
					"/session/" + id:  map[string]string{"id": id, "directory": "/d"}, "/permission": []any{}, "/question": []any{},
				}[r.URL.Path]
				if r.URL.Path == "/session/"+id+"/abort" {
					close(called)
					<-answer
					if !c.accepted {
						panic(http.ErrAbortHandler)
					}
					said = true
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(said)
			}))
			defer server.Close()
			ctx := t.Context()
			s, i := attending(t, server.URL)
			ledger := s.ledger
			event := func(kind restart.EventKind) {
				i.aborts.Lock()
				defer i.aborts.Unlock()
				e := s.judge(i, restart.Event{Kind: kind, Session: id})
				if err := ledger.Apply(ctx, e); err != nil {
					t.Error(err)
				}
				s.roster.observe(e)
			}
			event(restart.EventStarted)
			done := make(chan error, 1)
			go func() {
				_, err := s.Interrupt(ctx, id, 0)
				done <- err
			}()
			<-called
			i.guard.stopping.Store(true)
			_ = s.suspend(ctx, i)
			if c.endedFirst {
				event(restart.EventInterrupted)
			}
			close(answer)
			if err := <-done; (err == nil) != c.accepted {
				t.Fatalf("the interrupt: %v", err)
			}
			if !c.endedFirst {
				event(restart.EventInterrupted)
			}
			if _, err := ledger.Park(ctx, nothing{}, restart.ParkOptions{Cause: restart.CauseShutdown}); err != nil {
				t.Fatal(err)
			}
			list, err := ledger.Pending(ctx)
			if err != nil || (len(list) == 0) != c.accepted {
				t.Errorf("accepted: %v; pending: %+v, %v", c.accepted, list, err)
			}
		})
	}
}

// attending is a supervisor that has begun to attend a server of v1 at url, which
// works in /d. What goes on by itself in one doesn't.
func attending(t *testing.T, url string) (*supervisor, *incarnation) {
	t.Helper()
	dir := t.TempDir()
	ledger, err := restart.Open(filepath.Join(dir, "ledger.db"), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	db, err := opencode.OpenDatabase(filepath.Join(dir, "opencode.db"), opencode.V1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	inc := opencode.Incarnation{ID: "inc_1", Generation: opencode.V1, URL: url}
	c := &incarnation{
		record: record{Incarnation: inc}, guard: &guard{}, client: opencode.Connect(inc),
		gone: make(chan struct{}), aborted: map[string]*abort{}, asked: newAsked(), begun: newAsked(),
	}
	t.Cleanup(c.client.Close)
	c.client.Watch("/d")
	s := &supervisor{
		Options: Options{Log: slog.New(slog.DiscardHandler)}, roster: newRoster(func() {}), ledger: ledger, database: db, current: c,
	}
	t.Cleanup(s.roster.clear)
	err = ledger.BeginIncarnation(t.Context(), restart.Incarnation{ID: inc.ID, Generation: "v1", Database: filepath.Join(dir, "opencode.db"), StartedAt: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// An earlier supervisor saw a session start, this one has adopted the server.
func TestAdoptionKeepsSinceWhenSessionsWork(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"ses_1":{"type":"busy"},"ses_2":{"type":"busy"}}`))
	}))
	defer server.Close()
	s, c := attending(t, server.URL)
	long := time.Now().Add(-6 * time.Hour).UnixMilli()
	if err := s.ledger.Apply(t.Context(), restart.Event{Kind: restart.EventStarted, Session: "ses_1", At: long}); err != nil {
		t.Fatal(err)
	}
	before := time.Now().UnixMilli()
	if err := s.resync(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if list := s.roster.list(); len(list) != 2 || list[0].ID != "ses_1" || list[0].StartedAt != long || list[1].StartedAt < before {
		t.Errorf("%+v; %d was %d", list, long, before)
	}
	if asked, begun := c.asked.take(), c.begun.take(); len(asked) != 2 || len(begun) != 2 {
		t.Errorf("asked are %v and %v", asked, begun)
	}
}

// answering has a server of v1 answer aborts of ses_1: each sends on called, and gets
// from it whether it is accepted.
func answering(t *testing.T, called chan chan bool) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := map[string]any{"/session/status": map[string]any{"ses_1": map[string]string{"type": "busy"}}, "/session/ses_1": map[string]string{"id": "ses_1", "directory": "/d"}}[r.URL.Path]
		if r.URL.Path == "/session/ses_1/abort" {
			answer := make(chan bool)
			called <- answer
			if !<-answer {
				panic(http.ErrAbortHandler)
			}
			said = true
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(said)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// arrived waits for the server to be asked.
func arrived(t *testing.T, called chan chan bool) chan bool {
	t.Helper()
	select {
	case answer := <-called:
		return answer
	case <-time.After(10 * time.Second):
		t.Fatal("the server is not asked")
		return nil
	}
}

// hear has the supervisor take in an event of ses_1, as listen does.
func (s *supervisor) hear(c *incarnation, kind restart.EventKind) {
	c.aborts.Lock()
	defer c.aborts.Unlock()
	s.roster.observe(s.judge(c, restart.Event{Kind: kind, Session: "ses_1"}))
}

// The execution that was meant ends while the interrupt is under way, and another
// begins: whichever it has met, that is no success.
func TestAnInterruptThatMayHaveMetAnother(t *testing.T) {
	t.Parallel()
	called := make(chan chan bool)
	s, c := attending(t, answering(t, called))
	s.hear(c, restart.EventStarted)
	done := make(chan error, 1)
	go func() {
		_, err := s.Interrupt(t.Context(), "ses_1", s.roster.started("ses_1"))
		done <- err
	}()
	answer := arrived(t, called)
	s.hear(c, restart.EventSucceeded)
	s.hear(c, restart.EventStarted)
	answer <- true
	if err := <-done; code(err) != control.CodeUnknown || !strings.Contains(err.Error(), "intermission status") {
		t.Errorf("answered %v", err)
	}
}

// Of two interrupts of one execution one fails: the other counts, whichever comes first.
func TestTwoInterruptsOfOneExecution(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		called := make(chan chan bool)
		s, c := attending(t, answering(t, called))
		s.hear(c, restart.EventStarted)
		interrupt := func() (chan bool, chan error) {
			done := make(chan error, 1)
			go func() {
				_, err := s.Interrupt(t.Context(), "ses_1", 0)
				done <- err
			}()
			return arrived(t, called), done
		}
		answerA, doneA := interrupt()
		answerB, doneB := interrupt()
		answerA <- first
		errA := <-doneA
		answerB <- !first
		if errB := <-doneB; (errA == nil) != first || (errB == nil) == first {
			t.Errorf("answered %v and %v", errA, errB)
		}
		c.aborts.Lock()
		if !s.isAborted(c, "ses_1") {
			t.Errorf("the first was accepted: %v; a stop would suspend it", first)
		}
		c.aborts.Unlock()
	}
	called := make(chan chan bool)
	s, c := attending(t, answering(t, called))
	s.hear(c, restart.EventStarted)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := s.Interrupt(t.Context(), "ses_1", 0)
			done <- err
		}()
	}
	for _, answer := range []chan bool{arrived(t, called), arrived(t, called)} {
		answer <- false
		if <-done == nil {
			t.Error("a failed one counts as done")
		}
	}
	if len(c.aborted) != 0 {
		t.Errorf("both failed, and %+v is left", c.aborted)
	}
}
