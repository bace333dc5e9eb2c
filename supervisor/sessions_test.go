package supervisor

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// atWork waits until exactly these sessions are at work, by their start and each with its title, and gives them.
func (b *bed) atWork(ids ...string) []control.Working {
	b.t.Helper()
	var list []control.Working
	b.until(fmt.Sprintf("%q at work", ids), func() bool {
		st, err := b.client.Status(b.t.Context())
		list = st.Sessions.Working
		return err == nil && slices.EqualFunc(list, ids, func(w control.Working, id string) bool {
			return w.ID == id && w.Title != "" && w.Directory != ""
		})
	}, func() any { return list })
	return list
}

func code(err error) string {
	var e *control.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestInterruptIsOfOneExecution(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	first := b.prompt("[[slow n=9999 ms=20]]")
	w := b.atWork(first)[0]
	second := b.prompt("[[slow n=9999 ms=20]]")
	list := b.atWork(first, second)
	if list[0].StartedAt != w.StartedAt || list[1].StartedAt < w.StartedAt {
		t.Errorf("%+v after %+v", list, w)
	}
	ctx := t.Context()
	for name, c := range map[string]struct {
		id   string
		at   int64
		want string
	}{
		"stale":     {first, w.StartedAt - 1, control.CodeNotPending},
		"other's":   {second, list[1].StartedAt + 1, control.CodeNotPending},
		"idle":      {"ses_nowhere", 0, control.CodeNotPending},
		"ambiguous": {"ses_", 0, control.CodeAmbiguous},
	} {
		if _, err := b.client.Interrupt(ctx, c.id, c.at); code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.atWork(first, second)
	if i, err := b.client.Interrupt(ctx, first, w.StartedAt); err != nil || i.ID != first {
		t.Errorf("%+v, %v", i, err)
	}
	b.atWork(second)
	if _, err := b.client.Interrupt(ctx, first, w.StartedAt); code(err) != control.CodeNotPending {
		t.Errorf("the second interrupt: %v", err)
	}
	if i, err := b.client.Interrupt(ctx, second[:len(second)-1], 0); err != nil || i.ID != second {
		t.Errorf("by its beginning: %+v, %v", i, err)
	}
	b.atWork()
	b.stop()
	b.start()
	b.phase(Running)
	if p, err := b.client.Pending(ctx); err != nil || len(p.Pending) != 0 {
		t.Errorf("what its user interrupted is pending: %+v, %v", p, err)
	}
}

// What a session at work waits for is in the status as long as it does, also when
// its asking was missed.
func TestWhatAWorkingSessionWaitsFor(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	id := b.prompt("[[permission]] [[slow n=9999 ms=20]]")
	waits := func(what string) {
		t.Helper()
		var list []control.Working
		b.until(fmt.Sprintf("waiting for %q", what), func() bool {
			st, err := b.client.Status(t.Context())
			list = st.Sessions.Working
			return err == nil && len(list) == 1 && list[0].ID == id && list[0].WaitingFor == what
		}, func() any { return list })
	}
	waits("permission")
	var said struct{ Data []struct{ ID string } }
	b.ask(http.MethodGet, "/api/session/"+id+"/permission", nil, &said)
	b.post("/api/session/"+id+"/permission/"+said.Data[0].ID+"/reply", map[string]string{"reply": "once"}, nil)
	waits("")
}

// Whom the ledger or the stream knows nothing of is asked once, in whatever numbers they come.
func TestNobodyAskedIsDropped(t *testing.T) {
	t.Parallel()
	a := newAsked()
	for i := range 1000 { // nobody takes them meanwhile
		a.add("/d", fmt.Sprint(i))
	}
	a.add("", "0", "new")
	<-a.due
	if list := a.take(); len(list) != 1001 || list["0"] != "/d" || list["999"] != "/d" {
		t.Errorf("%d of 1001 were kept; 0 in %q", len(list), list["0"])
	}
	if list := a.take(); len(list) != 0 {
		t.Errorf("taken twice: %v", list)
	}
}

func TestAFailureIsAnOutcome(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	seen := make(chan control.Outcome, 16)
	watched := make(chan error, 1)
	go func() {
		watched <- b.client.Watch(t.Context(), func(snap control.Snapshot) error {
			for _, o := range snap.Outcomes {
				if o.Title != "" {
					seen <- o
					return errors.New("seen")
				}
			}
			return nil
		})
	}()
	id := b.prompt("please [[fail]]")
	b.until("the outcome", func() bool { return len(seen) > 0 }, func() any { return nil })
	<-watched
	if o := <-seen; o.ID != id || o.What != "failed" || o.Reason == "" || o.Seq != 1 || o.SuspendedAt != 0 {
		t.Errorf("%+v", o)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"XDG_CACHE_HOME": "/elsewhere", "HTTPS_PROXY": "http://127.0.0.1:9"})
	b.start()
	b.phase(Running)
	other := b.prompt("hello")
	id := b.prompt("[[slow n=9999 ms=20]]")
	b.atWork(id)
	want := control.Attachment{
		Argv: []string{b.o.Config.Server.Command[0], "--session", id}, Dir: b.dir, Env: map[string]string{"XDG_CACHE_HOME": "/elsewhere"},
	}
	for _, name := range []string{id, id[:len(id)-1]} {
		got, err := b.client.Attach(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		got.Dir, want.Dir = filepath.Clean(got.Dir), filepath.Clean(want.Dir)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if a, err := b.client.Attach(t.Context(), other); err != nil || a.Argv[2] != other {
		t.Errorf("an idle one: %v, %v", a, err)
	}
	if _, err := b.client.Attach(t.Context(), other[:len(other)-1]); code(err) != control.CodeNotPending {
		t.Errorf("a beginning of an idle one: %v", err)
	}
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.Attach(t.Context(), id); code(err) != control.CodeRefused || !strings.Contains(err.Error(), "intermission start") {
		t.Errorf("without a server: %v", err)
	}
}

// While v1 is being stopped its turns end with one and the same mark: that of an
// abort. One that its user has interrupted is no suspension all the same.
func TestAnInterruptDuringTheStopOfV1IsItsUsers(t *testing.T) {
	t.Parallel()
	s := &supervisor{roster: newRoster(func() {})}
	defer s.roster.clear()
	c := &incarnation{
		record: record{Incarnation: opencode.Incarnation{Generation: opencode.V1}}, guard: &guard{}, aborted: map[string]*abort{},
	}
	c.guard.stopping.Store(true)
	event := func(kind, want restart.EventKind) {
		t.Helper()
		e := s.judge(c, restart.Event{Kind: kind, Session: "ses_1"})
		if e.Kind != want {
			t.Errorf("%s counts as %s, want %s", kind, e.Kind, want)
		}
		s.roster.observe(e)
	}
	event(restart.EventStarted, restart.EventStarted)
	event(restart.EventInterrupted, restart.EventShutdown) // by the stop
	event(restart.EventStarted, restart.EventStarted)
	a, err := s.markAborted(c, "ses_1", s.roster.started("ses_1"))
	if err != nil {
		t.Fatal(err)
	}
	if !s.acceptAbort(c, "ses_1", a) || s.acceptAbort(c, "ses_1", &abort{started: a.started - 1}) {
		t.Error("not the execution that was interrupted")
	}
	event(restart.EventInterrupted, restart.EventInterrupted)
	event(restart.EventInterrupted, restart.EventInterrupted) // told twice
	if _, err := s.markAborted(c, "ses_1", 0); code(err) != control.CodeNotPending {
		t.Errorf("an interrupt of what has ended: %v", err)
	}
	// The next execution is not the one that was interrupted, also when its start was missed.
	s.roster.resync([]string{"ses_1"}, time.Now(), nil)
	event(restart.EventInterrupted, restart.EventShutdown)
}

// The server has begun another execution, and its event has not come: that one isn't interrupted.
func TestAStaleInterruptIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	s := b.startRevealed()
	b.phase(Running)
	var id string
	var w control.Working
	// One that began before the event stream was there is found, but its start isn't known.
	b.until("an execution whose start was heard", func() bool {
		if id != "" {
			if _, err := b.client.Interrupt(t.Context(), id, 0); err != nil {
				t.Fatal(err)
			}
			b.atWork()
		}
		id = b.prompt("[[slow n=9999 ms=20]]")
		w = b.atWork(id)[0]
		return s.roster.told(id, w.StartedAt) != 0
	}, func() any { return w })
	b.exec(`UPDATE event SET created = created + 1 WHERE type LIKE 'session.execution.started%'`) // than what we were told of
	if _, err := b.client.Interrupt(t.Context(), id, w.StartedAt); code(err) != control.CodeNotPending {
		t.Errorf("a stale one: %v", err)
	}
	b.atWork(id)
	if _, err := b.client.Interrupt(t.Context(), id, 0); err != nil {
		t.Errorf("of what runs now: %v", err)
	}
}
