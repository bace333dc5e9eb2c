package restart

import (
	"strings"
	"testing"
)

// The rows of the lifecycle table in the design, by name.

func TestLifecycleExecutionStartedSetsTheClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.claimed("ses_1")
	b.wants()
}

func TestLifecycleExecutionStartedSettlesTheSuspension(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	b.apply(EventStarted, "ses_1", 7000)
	b.wants()
	b.claimed("ses_1")
	b.journaled("ses_1", whatSuspended, whatSettled)
}

func TestLifecycleExecutionStartedByOurOwnResume(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	b.apply(EventStarted, "ses_1", 7000)
	b.wants()
	b.claimed("ses_1")
	b.journaled("ses_1", whatSuspended, whatConsented, whatDelivered)
	s, pending, _, err := b.Show(t.Context(), "ses_1")
	b.must(err)
	if pending || s.Resumes != 1 {
		t.Errorf("pending %v, resumes %d", pending, s.Resumes)
	}
}

func TestLifecycleExecutionSucceededFailedOrInterruptedClearsTheClaim(t *testing.T) {
	t.Parallel()
	for _, kind := range []EventKind{EventSucceeded, EventFailed, EventInterrupted} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.apply(EventStarted, "ses_1", 2000)
			b.apply(kind, "ses_1", 2000)
			b.claimed()
			b.park()
			b.wants()
		})
	}
}

func TestLifecycleEndingBySelfBetweenSuspensionAndTeardownClears(t *testing.T) {
	t.Parallel()
	for _, kind := range []EventKind{EventSucceeded, EventFailed, EventInterrupted} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.apply(EventStarted, "ses_1", 2000)
			b.must(b.Suspend(t.Context(), []string{"ses_1"}, 3000))
			b.apply(kind, "ses_1", 3100)
			b.wants()
			b.park()
			b.wants()
			b.journaled("ses_1", whatSuspended, whatSettled)
		})
	}
}

func TestLifecycleTeardownKeepsTheSuspension(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 3000))
	b.apply(EventShutdown, "ses_1", 3100)
	b.wants("ses_1 blocked")
	if _, err := b.Consume(t.Context(), "ses_1", 3000); err == nil || !strings.Contains(err.Error(), "being stopped") {
		t.Errorf("consent before the stop is over: %v", err)
	}
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 3000 || s.Cause != CauseShutdown {
		t.Errorf("suspended at %d, cause %s", s.SuspendedAt, s.Cause)
	}
	b.journaled("ses_1", whatSuspended)
}

func TestLifecycleInterruptedByTheShutdownBecomesASuspension(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.apply(EventShutdown, "ses_1", 3000)
	b.apply(EventShutdown, "ses_2", 3000) // its start was missed
	b.park()
	for _, s := range b.wants("ses_1 pending", "ses_2 pending") {
		if s.Cause != CauseShutdown || s.SuspendedAt != 3000 {
			t.Errorf("%+v", s)
		}
	}
}

func TestLifecycleIncarnationDiedMakesASuspension(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.db.fate("ses_1", OutcomeInFlight, "m")
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 5000 || s.Cause != CauseCrash || s.ClaimedAt != 2000 {
		t.Errorf("%+v", s)
	}
}

func TestLifecycleDeletedOrArchivedClearsClaimAndSuspension(t *testing.T) {
	t.Parallel()
	for _, kind := range []EventKind{EventDeleted, EventArchived} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := suspended(t)
			b.apply(EventStarted, "ses_2", 7000)
			b.apply(kind, "ses_1", 7000)
			b.apply(kind, "ses_2", 7001)
			b.wants()
			b.claimed()
			b.journaled("ses_1", whatSuspended, whatSettled)
		})
	}
}

// suspended gives a ledger with ses_1 suspended at 5000, and incarnation inc2 that began at 6000.
func suspended(t testing.TB) *bundle {
	t.Helper()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.park()
	b.begin("inc2", 6000)
	b.clock = 6500
	b.wants("ses_1 pending")
	return b
}

func TestEventsThatSayNoTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.clock = 500 // our clock was set back below everything
	b.apply(EventStarted, "ses_1", 0)
	b.apply(EventStarted, "ses_1", 0) // v1 says busy at each step
	b.claimed("ses_1")
	b.apply(EventInterrupted, "ses_1", 0)
	b.apply(EventInterrupted, "ses_1", 0)
	b.claimed()
	b.apply(EventStarted, "ses_1", 0)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 500))
	b.apply(EventStarted, "ses_1", 0) // the turn's last step, while it is stopped
	b.apply(EventShutdown, "ses_1", 0)
	b.park()
	b.wants("ses_1 pending")
	b.journaled("ses_1", whatSuspended)
}

func TestNothingAppliesWhileNoIncarnationRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.park()
	b.apply(EventSucceeded, "ses_1", 9000)
	b.apply(EventStarted, "ses_2", 9000)
	b.wants("ses_1 pending")
	b.claimed()
}

func TestSuspendTakesTheActiveAndNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_idle", 2000)
	b.apply(EventStarted, "ses_late", 3500)
	b.apply(EventStarted, "ses_1", 2000)
	for range 2 { // announcement, then the stop
		b.must(b.Suspend(t.Context(), []string{"ses_1", "ses_unseen", "ses_1"}, 3000))
	}
	b.wants("ses_unseen blocked", "ses_1 blocked")
	b.claimed("ses_late")
	b.journaled("ses_1", whatSuspended)
}

// TestSuspendInAnotherIncarnation: what waits must not count as at work in a successor.
func TestSuspendInAnotherIncarnation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.park()
	b.begin("inc2", 6000)
	was := b.wants("ses_1 pending")
	if err := b.SuspendIn(t.Context(), "inc1", []string{"ses_1"}, 6100); err == nil {
		t.Error("it was suspended in an incarnation that has ended")
	}
	if got := b.wants("ses_1 pending"); got[0].SuspendedAt != was[0].SuspendedAt || got[0].Announced {
		t.Errorf("now %+v", got)
	}
	b.apply(EventStarted, "ses_2", 6200)
	b.must(b.SuspendIn(t.Context(), "inc2", []string{"ses_2"}, 6300))
	for _, s := range b.wants("ses_1 pending", "ses_2 blocked") {
		if s.Announced != (s.ID == "ses_2") {
			t.Errorf("%+v", s)
		}
	}
}

func TestUnsuspendMakesClaimsAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.apply(EventStarted, "ses_1", 2000)
	b.must(b.Suspend(t.Context(), []string{"ses_1", "ses_2"}, 3000))
	b.must(b.Unsuspend(t.Context()))
	b.wants()
	b.claimed("ses_1", "ses_2")
	b.must(b.Resync(t.Context(), []string{"ses_2"}, 4000))
	b.claimed("ses_2")
	b.park()
	if s := b.wants("ses_2 pending")[0]; s.Cause != CauseCrash {
		t.Errorf("%+v", s)
	}
}

func TestResyncAfterMissedEvents(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	b.apply(EventStarted, "ses_ended", 6100)
	b.apply(EventStarted, "ses_new", 6600)
	b.must(b.Resync(t.Context(), []string{"ses_1", "ses_missed"}, 6500))
	b.claimed("ses_1", "ses_missed", "ses_new")
	b.wants()
	b.journaled("ses_1", whatSuspended, whatSettled)
}

func TestClockJumpsNeverNameTwoSuspensionsAlike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := map[int64]bool{}
	for i, at := range []int64{9000, 3000, 3000, 9000, 1} {
		b.clock = at
		b.must(b.Resync(t.Context(), []string{"ses_1"}, at))
		b.must(b.Suspend(t.Context(), []string{"ses_1"}, at))
		s := b.wants("ses_1 blocked")[0]
		if seen[s.SuspendedAt] {
			t.Fatalf("step %d: %d again", i, s.SuspendedAt)
		}
		seen[s.SuspendedAt] = true
		b.must(b.Unsuspend(t.Context()))
	}
}

func TestAnIncarnationThatWasNotParkedBlocksTheNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.begin("inc1", begun) // adopted again: the same
	err := b.BeginIncarnation(t.Context(), Incarnation{ID: "inc2", Database: serverDB})
	if err == nil || !strings.Contains(err.Error(), "inc1 has not been parked") {
		t.Fatalf("%v", err)
	}
	b.park()
	b.begin("inc2", 6000)
}

func TestOnChangeTellsOfWhatIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	b.OnChange(func() { n++ })
	for _, step := range []struct {
		kind EventKind
		want int
	}{{EventProgress, 0}, {EventStarted, 1}, {EventStarted, 1}, {EventProgress, 1}, {EventShutdown, 2}} {
		b.apply(step.kind, "ses_1", 2000)
		if n != step.want {
			t.Fatalf("%s: %d changes, want %d", step.kind, n, step.want)
		}
	}
	b.park()
	n = 0
	b.must(b.Shown(t.Context(), []string{"ses_1"}))
	b.must(b.Shown(t.Context(), []string{"ses_1"}))
	if _, _, journal, _ := b.Show(t.Context(), "ses_1"); n != 0 || journal[len(journal)-1].What != whatShown || journal[len(journal)-2].What == whatShown {
		t.Errorf("%d changes, journal %v", n, journal)
	}
}
