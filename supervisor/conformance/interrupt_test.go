//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"intermission/supervisor/control"
)

// interruptedByUser interrupts one of two sessions at work, and the other while the
// server is being stopped: they end, once, and nothing of them is pending.
func interruptedByUser(t *testing.T, u *user) {
	before := time.Now().UnixMilli()
	u.up(t)
	a := u.client(t)
	first := begin(t, u.sandbox, u.bed, a, "first", u.slow(900, 100), u.planner(), "")
	u.wantWorking(t, first) // of two that a resync finds at once none is the first
	second := begin(t, u.sandbox, u.bed, a, "second", u.slow(900, 100), "", "")
	requests := u.requests(t)
	list := u.wantWorking(t, first, second)
	now := time.Now().UnixMilli()
	for _, w := range list {
		if w.StartedAt < before || w.StartedAt > w.ProgressAt || w.ProgressAt > now || now-w.ProgressAt > patience.Milliseconds() {
			t.Errorf("between %d and %d: %+v", before, now, w)
		}
	}
	at := func(ms int64) []string { return []string{"--at", strconv.FormatInt(ms, 10), "--json"} }
	interrupt := func(w work, flags ...string) result {
		return u.exec(t, program, append([]string{"interrupt", w.id}, flags...)...)
	}
	if r := interrupt(first, at(list[0].StartedAt-1)...); r.exit != 4 {
		t.Errorf("interrupt of what ran before: %v", r)
	}
	u.wantWorking(t, first, second)
	if r := interrupt(first, at(list[0].StartedAt)...); r.exit != 0 || r.stdout != fmt.Sprintf("{\"id\":%q}\n", first.id) {
		t.Errorf("interrupt: %v", r)
	}
	u.idle(t, a, first)
	if after := u.wantWorking(t, second); after[0].StartedAt != list[1].StartedAt {
		t.Errorf("%+v was %+v", after, list[1])
	}
	if r := interrupt(first); r.exit != 4 {
		t.Errorf("interrupt of what has ended: %v", r)
	}

	// At the same moment the supervisor is told to stop: what was interrupted isn't suspended, or it was not interrupted.
	tray := control.Dial(u.path("run", "intermission", "intermission.sock"))
	defer tray.Close()
	if _, err := tray.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	u.supervisor.signal(t, syscall.SIGTERM)
	_, err := tray.Interrupt(t.Context(), second.id, list[1].StartedAt)
	u.supervisor.wait(t)
	u.up(t)
	var refused *control.Error
	switch {
	case err == nil:
		u.wantPending(t)
	case errors.As(err, &refused) && refused.Code == control.CodeNotPending:
		u.wantPending(t, second) // the stop was faster
	default: // the answer was lost with the server, or with us, which may have taken it
		t.Logf("whether it was interrupted isn't known: %v", err)
		if list := u.pending(t); len(list) > 1 || len(list) == 1 && list[0].ID != second.id {
			t.Errorf("%+v", list)
		}
	}
	u.quiet(t, requests)
	if n := u.interruptions(t, first.id); n != 1 {
		t.Errorf("%d turns were cut short, not 1", n)
	}
}

// wantWorking waits until exactly these sessions are at work by status, in the order
// of their start and each with its title, and gives them.
func (u *user) wantWorking(t testing.TB, want ...work) []working {
	t.Helper()
	var st status
	eventually(t, "the sessions at work", func() error {
		st = status{}
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if len(st.Sessions.Working) != len(want) || len(st.Sessions.Active) != len(want) {
			return fmt.Errorf("%+v", st.Sessions)
		}
		for i, w := range st.Sessions.Working {
			if w.ID != want[i].id || w.Directory != want[i].directory || w.Title == "" {
				return fmt.Errorf("%+v is not %s", w, want[i].marker)
			}
		}
		return nil
	})
	return st.Sessions.Working
}

// TestSilenceIsTold has the real server wait for its provider: who watches is told
// once the session has done nothing for QuietAfter, and of nothing before.
func TestSilenceIsTold(t *testing.T) {
	t.Parallel()
	u := newUser(t, newV1)
	u.up(t)
	w := begin(t, u.sandbox, u.bed, u.client(t), "silent", u.slow(2, 600_000), "", "")
	tray := control.Dial(u.path("run", "intermission", "intermission.sock"))
	defer tray.Close()
	told := make(chan control.Working, 1)
	seen := errors.New("seen")
	watching := make(chan error, 1)
	go func() {
		watching <- tray.Watch(t.Context(), func(snap control.Snapshot) error {
			for _, now := range snap.Status.Sessions.Working {
				if now.ID == w.id && now.Quiet {
					told <- now
					return seen
				}
			}
			return nil
		})
	}()
	select {
	case now := <-told:
		if silent := time.Since(time.UnixMilli(now.ProgressAt)); now.Title == "" || now.StartedAt > now.ProgressAt || silent < control.QuietAfter || silent > control.QuietAfter+10*time.Second {
			t.Errorf("%+v", now)
		}
	case err := <-watching:
		t.Fatalf("the stream ended: %v", err)
	case <-time.After(patience):
		t.Fatal("its silence was never told")
	}
	if err := <-watching; !errors.Is(err, seen) {
		t.Error(err)
	}
}
