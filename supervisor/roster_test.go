package supervisor

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"intermission/restart"
	"intermission/supervisor/control"
)

// watched is a roster in a bubble of fake time, with the count of what was told.
type watched struct {
	*roster
	t    *testing.T
	told atomic.Int64
}

func watch(t *testing.T, f func(w *watched)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t}
		w.roster = newRoster(func() { w.told.Add(1) })
		f(w)
		w.clear()
		w.idle()
	})
}

func (w *watched) event(kind restart.EventKind, id string) {
	w.observe(restart.Event{Kind: kind, Session: id})
}

// wait lets time pass, and wants so many to be told of something in it.
func (w *watched) wait(d time.Duration, told int) {
	w.t.Helper()
	before := w.told.Load()
	time.Sleep(d)
	synctest.Wait()
	if n := w.told.Load() - before; n != int64(told) {
		w.t.Errorf("within %s watchers were told %d times, not %d", d, n, told)
	}
}

// idle holds that no timer runs.
func (w *watched) idle() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.t.Error("a timer runs although nobody works who may fall silent")
	}
}

func (w *watched) one() control.Working {
	w.t.Helper()
	list := w.list()
	if len(list) != 1 {
		w.t.Fatalf("%+v", list)
	}
	return list[0]
}

func TestSilenceIsToldOnce(t *testing.T) {
	watch(t, func(w *watched) {
		w.idle()
		w.event(restart.EventStarted, "ses_1")
		start := time.Now().UnixMilli()
		for range 90 { // it works for a minute and a half
			w.wait(time.Second, 0)
			w.event(restart.EventProgress, "ses_1")
		}
		if x := w.one(); x.StartedAt != start || x.ProgressAt != start+90_000 {
			t.Errorf("%+v, started at %d", x, start)
		}
		w.wait(control.QuietAfter-time.Second, 0)
		if w.one().Quiet {
			t.Error("quiet before its time")
		}
		w.wait(time.Second, 1)
		if !w.one().Quiet {
			t.Error("not quiet")
		}
		w.idle()
		w.wait(time.Hour, 0)
		before := w.told.Load()
		w.event(restart.EventProgress, "ses_1")
		w.event(restart.EventProgress, "ses_1")
		if n := w.told.Load() - before; n != 1 {
			t.Errorf("told %d times that it does something again", n)
		}
		w.wait(control.QuietAfter, 1)
	})
}

// A session that works steadily says so in no snapshot, and is never called quiet.
func TestSteadyWorkIsNeverQuiet(t *testing.T) {
	watch(t, func(w *watched) {
		w.event(restart.EventStarted, "ses_1")
		for range 120 { // each time as late as can be
			w.wait(control.QuietAfter-time.Millisecond, 0)
			if w.one().Quiet {
				t.Fatal("it is called quiet")
			}
			w.event(restart.EventProgress, "ses_1")
		}
	})
}

// Who asks and who is answered is told once, and neither is silence.
func TestWhatASessionWaitsForIsTold(t *testing.T) {
	watch(t, func(w *watched) {
		w.event(restart.EventStarted, "ses_1")
		started := w.one().StartedAt
		says := func(what string, told int64) {
			t.Helper()
			before := w.told.Load()
			w.roster.wait("ses_1", started, what)
			if n := w.told.Load() - before; n != told || w.waits("ses_1") != (what != "") || w.one().WaitingFor != what {
				t.Errorf("%q: told %d times; %+v", what, n, w.one())
			}
		}
		says("", 0)
		w.wait(control.QuietAfter, 1)
		says("permission", 1)
		says("permission", 0)
		if w.one().Quiet {
			t.Error("quiet while it asks")
		}
		w.wait(5*time.Hour, 1)
		says("", 1)
		if x := w.one(); x.Quiet || x.ProgressAt != time.Now().UnixMilli() {
			t.Errorf("once answered: %+v", x)
		}
		says("question", 1)
		w.event(restart.EventInterrupted, "ses_1")
		w.event(restart.EventStarted, "ses_1")
		w.roster.wait("ses_1", started, "question") // a late answer, of the execution before
		if w.one().WaitingFor != "" {
			t.Error("an execution waits for what the one before did")
		}
	})
}

func TestOneTimerForAll(t *testing.T) {
	watch(t, func(w *watched) {
		w.event(restart.EventStarted, "ses_1")
		w.wait(20*time.Second, 0)
		w.event(restart.EventStarted, "ses_2")
		w.wait(20*time.Second, 0)
		w.event(restart.EventStarted, "ses_3")
		w.event(restart.EventSucceeded, "ses_2")
		w.wait(20*time.Second, 1) // ses_1
		w.wait(39*time.Second, 0)
		w.wait(time.Second, 1) // ses_3
		w.idle()
		w.event(restart.EventStarted, "ses_4")
		w.event(restart.EventInterrupted, "ses_4")
		w.idle()
	})
}

// The name of an execution is never that of one before, not within one millisecond either.
func TestEachExecutionHasItsName(t *testing.T) {
	watch(t, func(w *watched) {
		var last int64
		for range 5 {
			w.event(restart.EventStarted, "ses_1")
			w.event(restart.EventStarted, "ses_1") // told twice
			x := w.one()
			if x.StartedAt <= last || x.ProgressAt < x.StartedAt || w.started("ses_1") != x.StartedAt {
				t.Errorf("%+v after %d", x, last)
			}
			last = x.StartedAt
			w.event(restart.EventSucceeded, "ses_1")
			w.event(restart.EventProgress, "ses_1") // late
			if w.started("ses_1") != 0 {
				t.Error("it works after its end")
			}
		}
		w.past["ses_1"] = past{started: time.Now().Add(time.Hour).UnixMilli()} // and then the clock was set back
		w.event(restart.EventStarted, "ses_1")
		if x := w.one(); x.StartedAt <= w.past["ses_1"].started-1 {
			t.Errorf("%+v", x)
		}
	})
}

func TestResyncKeepsWhatIsKnown(t *testing.T) {
	watch(t, func(w *watched) {
		w.event(restart.EventStarted, "stays")
		w.event(restart.EventStarted, "ended unseen")
		before := w.started("stays")
		w.wait(time.Second, 0)
		asked := time.Now()
		w.wait(time.Second, 0)
		w.event(restart.EventStarted, "began since")
		w.event(restart.EventStarted, "came and went since")
		w.event(restart.EventSucceeded, "came and went since")
		w.resync([]string{"stays", "began unseen", "came and went since"}, asked, nil)
		if got := w.ids(); len(got) != 3 || w.started("stays") != before || w.started("began since") == 0 || w.started("began unseen") == 0 {
			t.Errorf("%q", got)
		}
		if list := w.list(); list[0].ID != "stays" {
			t.Errorf("not by their start: %+v", list)
		}
	})
}

// Who was at work before we came says since when, unless that can't be.
func TestResyncTellsSinceWhen(t *testing.T) {
	watch(t, func(w *watched) {
		now := time.Now()
		long, later := now.Add(-6*time.Hour).UnixMilli(), now.Add(time.Hour).UnixMilli()
		w.event(restart.EventStarted, "ended")
		w.event(restart.EventSucceeded, "ended")
		w.wait(time.Second, 0)
		asked := time.Now()
		w.resync([]string{"ses_1", "set back", "ended", "unknown"}, asked, map[string]int64{"ses_1": long, "set back": later, "ended": long})
		for id, want := range map[string]int64{"ses_1": long, "set back": asked.UnixMilli(), "ended": now.UnixMilli() + 1, "unknown": asked.UnixMilli()} {
			if got := w.started(id); got != want {
				t.Errorf("%s started %d, want %d", id, got, want)
			}
		}
		if x := w.list()[0]; x.ID != "ses_1" || x.Quiet || x.ProgressAt != asked.UnixMilli() {
			t.Errorf("%+v", x)
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	watch(t, func(w *watched) {
		for i := range 3 * maxPast {
			id := time.Duration(i).String()
			w.event(restart.EventStarted, id)
			time.Sleep(time.Millisecond)
			w.event(restart.EventSucceeded, id)
		}
		if n := len(w.past); n > maxPast {
			t.Errorf("%d are remembered", n)
		}
	})
}

// TestAMissedEndMakesAnother: what starts later by the server's clock is another
// execution, and has another name; the same word twice is not.
func TestAMissedEndMakesAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoster(func() {})
		defer r.clear()
		start := func(at int64) int64 {
			r.observe(restart.Event{Kind: restart.EventStarted, Session: "s", At: at})
			return r.started("s")
		}
		first := start(1000)
		if again := start(1000); again != first {
			t.Errorf("the same start makes another execution: %d and %d", first, again)
		}
		if late := start(900); late != first {
			t.Errorf("a late word makes another execution: %d and %d", first, late)
		}
		if second := start(2000); second <= first {
			t.Errorf("a newer start keeps the name %d: %d", first, second)
		}
	})
}
