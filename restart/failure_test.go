package restart

import (
	"context"
	"errors"
	"testing"
)

// The rows of the failure table in the design, by name. "Dies" is: the ledger is
// closed and opened again, and nothing in memory is kept.

func TestFailureServerKilledBeforeAGracefulStop(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	b.apply(EventStarted, "ses_1", 2000)
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.Cause != CauseCrash {
		t.Errorf("%+v", s)
	}
	b.begin("inc2", 6000)
	b.claimed()
}

func TestFailureDeathBetweenSuspensionAndTeardown(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	b.apply(EventStarted, "ses_1", 2000)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 3000))
	b.reopen()
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 3000 || s.Cause != CauseShutdown {
		t.Errorf("%+v", s)
	}
	b.journaled("ses_1", whatSuspended)
}

func TestFailureDeathBeforeTheSuspensionIsConsumed(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	b.reopen()
	b.must(b.Recover(t.Context(), nil, b.db))
	b.wants("ses_1 pending")
	b.park() // the server died as well
	b.wants("ses_1 pending")
	b.journaled("ses_1", whatSuspended)
}

func TestFailureDeathAfterItWasConsumedBeforeItWasSent(t *testing.T) {
	t.Parallel()
	for _, serverToo := range []bool{false, true} {
		b := suspended(t)
		_, err := b.Consume(t.Context(), "ses_1", 5000)
		b.must(err)
		b.reopen()
		if serverToo {
			b.park()
		} else {
			b.must(b.Recover(t.Context(), nil, b.db))
		}
		if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 5000 || s.Resumes != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestFailureDeathAfterItWasConsumedBeforeDeliveryIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrival Arrival
		err     error
		mark    string
		word    string
		shown   []string
	}{
		"delivered":                      {Arrived, nil, "m", whatDelivered, nil},
		"surely not delivered":           {NotArrived, nil, "m", whatRefused, []string{"ses_1 pending"}},
		"not ours, and it went on":       {NotArrived, nil, "m2", whatSettled, nil},
		"can't be known":                 {ArrivalUnknown, nil, "m", whatUnknown, []string{"ses_1 unknown"}},
		"can't be asked":                 {Arrived, errors.New("no"), "m", whatUnknown, []string{"ses_1 unknown"}},
		"the database shows that it was": {ArrivalUnknown, nil, "m2", whatDelivered, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := suspended(t)
			ticket, err := b.Consume(t.Context(), "ses_1", 5000)
			b.must(err)
			b.must(b.Delivering(t.Context(), ticket))
			b.reopen()
			b.db.fate("ses_1", OutcomeEnded, c.mark)
			b.must(b.Recover(t.Context(), func(_ context.Context, d Delivery) (Arrival, error) {
				if d.Session != "ses_1" || d.Suspended != 5000 || d.Directory != "/" {
					t.Errorf("asked for %+v", d)
				}
				return c.arrival, c.err
			}, b.db))
			b.wants(c.shown...)
			b.journaled("ses_1", whatSuspended, whatConsented, c.word)
		})
	}
}

func TestFailureServerDiesBeforeDeliveryIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fate  Fate
		claim bool
		words []string
		shown []string
	}{
		"nothing was written":   {Fate{OutcomeSuspended, "m"}, false, []string{whatRefused}, []string{"ses_1 pending"}},
		"it executed and ended": {Fate{OutcomeEnded, "m2"}, false, []string{whatDelivered}, nil},
		"it executed":           {Fate{OutcomeInFlight, "m2"}, false, []string{whatDelivered, whatSuspended}, []string{"ses_1 pending"}},
		"it has a claim":        {Fate{OutcomeInFlight, "m2"}, true, []string{whatDelivered, whatSuspended}, []string{"ses_1 pending"}},
		"no mark":               {Fate{OutcomeUnknown, ""}, false, []string{whatUnknown}, []string{"ses_1 unknown"}},
		"the session is gone":   {Fate{OutcomeGone, ""}, false, []string{whatSettled}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.witness()
			ticket := b.consented()
			b.must(b.Delivering(t.Context(), ticket))
			b.reopen()
			b.db.fates["ses_1"] = c.fate
			if c.claim {
				b.db.claims["ses_1"] = claim("ses_1", 6600)
			}
			b.clock = 8000
			b.park()
			b.wants(c.shown...)
			b.journaled("ses_1", append([]string{whatSuspended, whatConsented}, c.words...)...)
		})
	}
}

func TestFailureDeathAfterTheExecutionStarted(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	for i := range 3 { // a crash loop by resume
		at := b.wants("ses_1 pending")[0].SuspendedAt
		ticket, err := b.Consume(t.Context(), "ses_1", at)
		b.must(err)
		b.must(b.Delivering(t.Context(), ticket))
		b.clock += 1000
		b.apply(EventStarted, "ses_1", b.clock)
		b.db.claims["ses_1"] = claim("ses_1", b.clock)
		b.reopen()
		b.clock += 1000
		_, err = b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash})
		b.must(err)
		b.begin("next"+ticket.Session+string(rune('a'+i)), b.clock)
		s := b.wants("ses_1 pending")[0]
		if s.Resumes != i+1 || s.SuspendedAt != b.clock || s.Cause != CauseCrash {
			t.Errorf("%d: %+v", i, s)
		}
		b.claimed()
	}
}

func TestFailureDeathAfterAcceptanceBeforeAnyEvent(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	b.must(b.Delivered(t.Context(), ticket, "accepted"))
	b.db.fate("ses_1", OutcomeUnknown, "m2") // v1: the database doesn't tell
	b.clock = 8000
	_, err = b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash})
	b.must(err)
	if s := b.wants("ses_1 pending")[0]; s.Resumes != 1 || s.SuspendedAt != 8000 {
		t.Errorf("%+v", s)
	}
}

func TestFailureAnInterruptedToolIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	b.db.about["ses_1"] = Description{Title: "t", Directory: "/", LastTool: &Tool{Name: "write", Input: "a.txt", Status: "running"}}
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.LastTool == nil || *s.LastTool != (Tool{"write", "a.txt", "running"}) {
		t.Errorf("%+v", s)
	}
	b.begin("inc2", 6000)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	if ticket.Text != "" {
		t.Errorf("the tool's call is told to the session: %q", ticket.Text)
	}
}

func TestFailureOldDatabaseFromBeforeWeWereInstalled(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.db.inFlight = []string{"ses_1", "ses_2"}
	b.park()
	b.begin("inc1", 6000)
	b.must(b.Reconcile(t.Context(), b.db))
	b.must(b.Recover(t.Context(), nil, b.db))
	b.wants()
}
