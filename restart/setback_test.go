package restart

import (
	"errors"
	"testing"
)

// What a server that died was doing stays without an end in its database. When the
// clock is set back then, its start looks later than the next server's, and it must
// not be taken for something that this one was doing: nobody would ever be rid of it.
func TestADismissedExecutionDoesNotComeBackWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.clock = 10 * hour
	b.begin("inc1", b.clock)
	b.apply(EventStarted, "ses_1", b.clock+1)
	b.db.fate("ses_1", OutcomeInFlight, "m1")
	o := ParkOptions{Cause: CauseCrash, Database: serverDB}
	_, err := b.Park(t.Context(), b.db, o)
	b.must(err)
	_, err = b.Dismiss(t.Context(), "ses_1", 0)
	b.must(err)
	b.clock -= hour
	b.begin("inc2", b.clock)
	b.db.inFlight = []string{"ses_1"} // started since then, by its time
	_, err = b.Park(t.Context(), b.db, o)
	b.must(err)
	b.wants()
	b.begin("inc3", b.clock)
	b.db.fate("ses_1", OutcomeInFlight, "m2") // this one is new
	_, err = b.Park(t.Context(), b.db, o)
	b.must(err)
	b.wants("ses_1 pending")
}

// A subagent that is at work in a server which is being stopped can't be decided about by
// way of its parent, which waits since an earlier end.
func TestAParentIsNotDecidedWhileWhatWaitsUnderItIsBeingStopped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_parent", 2000)
	b.park()
	b.begin("inc2", 6000)
	b.apply(EventStarted, "ses_child", 6001)
	b.must(b.SetParents(t.Context(), map[string]string{"ses_child": "ses_parent"}))
	b.must(b.Suspend(t.Context(), []string{"ses_child"}, 6002))
	refused := new(RefusedError)
	if _, err := b.Consume(t.Context(), "ses_parent", 5000); !errors.As(err, &refused) {
		t.Errorf("the consent: %v", err)
	}
	if _, err := b.Dismiss(t.Context(), "ses_parent", 0); !errors.As(err, &refused) {
		t.Errorf("the no: %v", err)
	}
	b.must(b.Unsuspend(t.Context()))
	b.claimed("ses_child")
	b.wants("ses_parent pending")
}

// A stop that finds a session at work which no event told of doesn't forget the events
// that it knew, when the clock was set back.
func TestASuspensionForgetsNoEventWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.clock = 10 * hour
	b.begin("inc1", 9*hour)
	b.apply(EventStarted, "ses_1", b.clock)
	b.apply(EventSucceeded, "ses_1", b.clock+10)
	b.clock -= hour / 2
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, b.clock))
	b.apply(EventSucceeded, "ses_1", 10*hour+10) // comes again
	b.wants("ses_1 blocked")
}
