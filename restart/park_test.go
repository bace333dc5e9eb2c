package restart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParkFromBeforeUsInfersNothing(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_old", 10), claim("ses_new", 4990))
	b.db.claims["ses_new"] = Claim{Session: "ses_new", ClaimedAt: 4990, Attempts: 7, Raw: []byte(`{"resume_attempts":7}`)}
	b.db.inFlight = []string{"ses_unfinished"}
	b.db.fate("ses_unfinished", OutcomeInFlight, "m")
	p := b.park()
	if p.Claims != 2 || p.Suspended != 2 {
		t.Errorf("%+v", p)
	}
	list := b.wants("ses_old pending", "ses_new pending")
	for i, at := range []int64{10, 4990} {
		if s := list[i]; s.SuspendedAt != at || s.ClaimedAt != at || s.Cause != CauseParked {
			t.Errorf("%+v", s)
		}
	}
	if list[1].Attempts != 7 {
		t.Errorf("attempts %d", list[1].Attempts)
	}
	var raw string
	b.must(b.Ledger.db.QueryRow("SELECT raw FROM parked WHERE session = 'ses_new'").Scan(&raw))
	if raw != `{"resume_attempts":7}` {
		t.Errorf("raw is %s", raw)
	}
}

func TestParkThreeTimesMakesOneSuspension(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_1", 10))
	for i := range 3 {
		b.park()
		id := fmt.Sprintf("inc%d", i)
		b.begin(id, 6000+int64(i))
		b.wants("ses_1 pending")
		b.reopen()
	}
	b.journaled("ses_1", whatSuspended)
}

func TestParkOfAWatchedIncarnation(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_seen", 2000), claim("ses_missed", 2100), claim("ses_older", 900), claim("ses_stop", 2050))
	for _, id := range []string{"ses_seen", "ses_ended", "ses_stop", "ses_over"} {
		b.apply(EventStarted, id, 2000)
	}
	b.must(b.Suspend(t.Context(), []string{"ses_stop", "ses_over", "ses_seen2", "ses_ended", "ses_seen"}, 3000))
	b.must(b.Unsuspend(t.Context()))
	b.must(b.Suspend(t.Context(), []string{"ses_stop", "ses_over"}, 4000))
	b.must(b.Resync(t.Context(), []string{"ses_seen", "ses_ended"}, 4500))
	b.db.inFlight = []string{"ses_flight", "ses_seen"}
	for id, o := range map[string]Outcome{"ses_ended": OutcomeEnded, "ses_over": OutcomeEnded} {
		b.db.fate(id, o, "m")
	}
	b.park()
	b.wants("ses_older pending", "ses_stop pending", "ses_seen pending", "ses_missed pending", "ses_flight pending")
	for _, s := range b.pending() {
		want := map[string]Cause{"ses_older": CauseParked, "ses_stop": CauseShutdown}[s.ID]
		if want == "" {
			want = CauseCrash
		}
		if s.Cause != want {
			t.Errorf("%s: cause %s, want %s", s.ID, s.Cause, want)
		}
	}
	b.claimed()
}

func TestParkByFates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outcome Outcome
		stays   bool
	}{{OutcomeEnded, false}, {OutcomeGone, false}, {OutcomeArchived, false}, {OutcomeInFlight, true}, {OutcomeSuspended, true}, {OutcomeUnknown, true}} {
		t.Run(fmt.Sprint(c.outcome), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.witness()
			b.apply(EventStarted, "ses_claim", 2000)
			b.must(b.Suspend(t.Context(), []string{"ses_stop"}, 1500))
			b.db.fate("ses_claim", c.outcome, "m")
			b.db.fate("ses_stop", c.outcome, "m")
			b.park()
			if c.stays {
				b.wants("ses_stop pending", "ses_claim pending")
			} else {
				b.wants()
			}
		})
	}
}

func TestArchivedAndClaimedIsSettledAndNeverOffered(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_1", 10))
	b.db.fate("ses_1", OutcomeArchived, "m")
	b.park()
	b.wants()
	if len(b.db.claims) != 0 {
		t.Error("its claim still stands in the database")
	}
	b.journaled("ses_1", whatSuspended, whatSettled)
}

func TestSessionWentOnElsewhereAndIsClaimedAnew(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_1", 10))
	b.park()
	b.db.claims["ses_1"] = claim("ses_1", 4000) // a server that we did not see executed it
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 4000 {
		t.Errorf("%+v", s)
	}
	b.journaled("ses_1", whatSuspended, whatSettled, whatSuspended)
}

// TestSubagentsAreNeverShownByThemselves: not at one of the looks between the first
// row of a park and the descriptions, which are all that is asked for the family.
func TestSubagentsAreNeverShownByThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	sub := claim("ses_sub", 2000)
	sub.Parent = "ses_root"
	b.db.claims["ses_root"], b.db.claims["ses_sub"] = claim("ses_root", 1990), sub
	for _, id := range []string{"ses_v1", "ses_v1sub"} { // of a server that writes no claims
		b.apply(EventStarted, id, 2000)
	}
	b.must(b.SetParents(ctx, map[string]string{"ses_v1sub": "ses_v1", "ses_nowhere": "ses_v1"}))
	looks := 0
	b.OnChange(func() {
		looks++
		list, err := b.Pending(ctx)
		b.must(err)
		counts, err := b.Counts(ctx)
		b.must(err)
		for _, s := range list {
			if s.ID == "ses_sub" || s.ID == "ses_v1sub" {
				t.Errorf("look %d shows %s", looks, s.ID)
			}
		}
		if counts.Pending != len(list) {
			t.Errorf("look %d counts %d and lists %d", looks, counts.Pending, len(list))
		}
	})
	b.must(b.Suspend(ctx, []string{"ses_v1", "ses_v1sub"}, 3000))
	_, err := b.Park(ctx, b.db, ParkOptions{Undescribed: true})
	b.must(err)
	list := b.wants("ses_v1 pending", "ses_root pending")
	if looks < 2 || len(list[0].Children) != 1 || len(list[1].Children) != 1 {
		t.Errorf("%d looks; %+v", looks, list)
	}
}

func TestJobsWaitUnderTheirSession(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_root", 10), claim("ses_sub", 20))
	b.db.about["ses_sub"] = Description{Title: "sub", Parent: "ses_root"}
	b.db.about["ses_leaf"] = Description{Title: "leaf", Parent: "ses_sub"}
	b.db.jobs["job/1"] = Job{Key: "job/1", Kind: "shell", Session: "ses_sub", Text: "make\x1b[31m all", Status: "running", Raw: []byte(`{"n":1}`)}
	b.db.jobs["job/2"] = Job{Key: "job/2", Kind: "subagent", Session: "ses_idle", Child: "ses_bg", Text: "look", Status: "running", Raw: []byte(`{"n":2}`)}
	b.db.jobs["job/3"] = Job{Key: "job/3", Kind: "subagent", Session: "ses_sub", Child: "ses_leaf", Text: "dig", Status: "running", Raw: []byte(`{"n":3}`)}
	b.db.jobs["job/4"] = Job{Key: "job/4", Kind: "shell", Session: "ses_shell", Text: "rm -r x", Status: "completed", Raw: []byte(`{"n":4}`)}
	b.park()
	list := b.wants("ses_root pending", "ses_idle pending", "ses_shell pending")
	if got := list[0]; !slices.Equal(got.Children, []string{"ses_leaf", "ses_sub"}) || len(got.Jobs) != 2 || got.Jobs[0].Text != "make all" {
		t.Errorf("%+v", got)
	}
	if got := list[1]; !slices.Equal(got.Children, []string{"ses_bg"}) || len(got.Jobs) != 1 {
		t.Errorf("%+v", got)
	}
	b.begin("inc1", 6000)

	ticket, err := b.Consume(t.Context(), "ses_root", list[0].SuspendedAt)
	b.must(err)
	for _, part := range []string{"shell: make all", "subagent: dig", "unknown"} {
		if !strings.Contains(ticket.Text, part) {
			t.Errorf("%q is not in %q", part, ticket.Text)
		}
	}
	b.must(b.Delivering(t.Context(), ticket))
	b.must(b.PutBack(t.Context(), ticket, "no", ""))
	if got := b.wants("ses_root pending", "ses_idle pending", "ses_shell pending")[0]; len(got.Children) != 2 || len(got.Jobs) != 2 {
		t.Errorf("put back: %+v", got)
	}
	ticket, err = b.Consume(t.Context(), "ses_root", list[0].SuspendedAt)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	b.must(b.Delivered(t.Context(), ticket, "accepted"))
	b.wants("ses_idle pending", "ses_shell pending")
	b.journaled("ses_leaf", whatSuspended, whatConsented, whatRefused, whatConsented, whatSettled)

	n, err := b.Dismiss(t.Context(), "ses_idle", 0)
	if err != nil || n != 2 {
		t.Errorf("dismissed %d, %v", n, err)
	}
	b.wants("ses_shell pending")
	var open int
	b.must(b.Ledger.db.QueryRow("SELECT count(*) FROM parked WHERE kind = 'job' AND done_at IS NULL").Scan(&open))
	if open != 1 {
		t.Errorf("%d jobs are open", open)
	}
}

func TestPlainContinuationHasNoText(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	if ticket.Text != "" || ticket.Directory != "/" || ticket.Suspended != 5000 || ticket.Mark != "m" {
		t.Errorf("%+v", ticket)
	}
}

func TestAChildCannotBeDecidedAlone(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_root", 10), claim("ses_sub", 20))
	b.db.about["ses_sub"] = Description{Parent: "ses_root"}
	b.park()
	var refused *RefusedError
	if _, err := b.Consume(t.Context(), "ses_sub", 20); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "ses_root") {
		t.Errorf("consume: %v", err)
	}
	if _, err := b.Dismiss(t.Context(), "ses_sub", 20); !errors.As(err, &refused) {
		t.Errorf("dismiss: %v", err)
	}
}

func TestParkSweepsAgainWhenTheDatabaseChanges(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_1", 10))
	n := 0
	b.db.onClear = func() {
		if n++; n == 1 {
			b.db.mu.Lock()
			b.db.claims["ses_2"] = claim("ses_2", 20)
			b.db.claims["ses_1"] = claim("ses_1", 30)
			b.db.mu.Unlock()
		}
	}
	b.park()
	b.wants("ses_2 pending", "ses_1 pending")
	b.journaled("ses_1", whatSuspended, whatSettled, whatSuspended)

	b.db.claims["ses_3"] = claim("ses_3", 40)
	b.db.fail["Clear"] = ErrChanged
	n = 0
	if _, err := b.Park(t.Context(), b.db, ParkOptions{Database: serverDB}); !errors.Is(err, ErrChanged) || n != parkAttempts {
		t.Errorf("%v after %d attempts", err, n)
	}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := []string{"ses_archived", "ses_gone", "ses_same", "ses_wenton"}
	b.must(b.Suspend(t.Context(), all, 3000))
	b.db.fail["Describe"] = errors.New("busy")
	if p, err := b.Park(t.Context(), b.db, ParkOptions{Cause: CauseShutdown, Database: serverDB}); err != nil || len(p.Warnings) != 1 {
		t.Fatalf("%v, %v", p.Warnings, err)
	}
	clear(b.db.fail)
	b.begin("inc2", 6000)
	b.db.fate("ses_gone", OutcomeGone, "")
	b.db.fate("ses_archived", OutcomeArchived, "m")
	b.db.fate("ses_wenton", OutcomeEnded, "m2")
	b.must(b.Reconcile(t.Context(), b.db))
	if s := b.wants("ses_same pending")[0]; s.Title != "Title of ses_same" {
		t.Errorf("%+v", s)
	}
	for _, id := range []string{"ses_archived", "ses_gone", "ses_wenton"} {
		b.journaled(id, whatSuspended, whatSettled)
	}
}

// Whoever asks while no server of ours runs isn't shown what went on elsewhere.
func TestReconcileWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000), claim("ses_2", 2000))
	b.park()
	b.wants("ses_1 pending", "ses_2 pending")
	b.db.fate("ses_1", OutcomeEnded, "m2")
	b.must(b.Reconcile(t.Context(), b.db))
	b.wants("ses_2 pending")
	b.journaled("ses_1", whatSuspended, whatSettled)

	b.db.fate("ses_2", OutcomeGone, "")
	b.must(b.Reconcile(t.Context(), located{b.db, "/data/other.db"}))
	b.wants("ses_2 pending")
	b.must(b.Reconcile(t.Context(), located{b.db, serverDB}))
	b.wants()
}

// located is a database that says which one it is.
type located struct {
	*fakeDatabase
	path string
}

func (l located) Path() string { return l.path }

// What was known of a session is shown also when its suspension has ended, and when it can't be looked at any more.
func TestTheLastDescriptionStays(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	b.park()
	b.begin("inc2", 6000)
	ticket, err := b.Consume(t.Context(), "ses_1", 5000)
	b.must(err)
	b.must(b.Delivering(t.Context(), ticket))
	b.must(b.Delivered(t.Context(), ticket, "accepted"))
	look := func(when string, claimed, suspended int64, waits bool) {
		t.Helper()
		s, pending, _, err := b.Show(t.Context(), "ses_1")
		b.must(err)
		if pending != waits || s.Title != "Title of ses_1" || s.Directory != "/" || s.ClaimedAt != claimed || s.SuspendedAt != suspended {
			t.Errorf("%s: pending %v, %+v", when, pending, s)
		}
	}
	look("resumed", 2000, 5000, false)
	b.apply(EventStarted, "ses_1", 7000)
	look("at work", 2000, 5000, false)
	b.db.fail["Describe"] = errors.New("it is locked")
	_, err = b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash, At: 8000, Database: serverDB})
	b.must(err)
	look("suspended again", 7000, 8000, true)
	_, err = b.Dismiss(t.Context(), "ses_1", 0)
	b.must(err)
	look("dismissed", 7000, 8000, false)
}

func TestAnotherDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	b.park()
	b.must(b.BeginIncarnation(t.Context(), Incarnation{ID: "v1", Generation: "v1", Database: "/data/other.db", StartedAt: 7000}))
	other := newDatabase()
	other.fate("ses_1", OutcomeGone, "")
	b.must(b.Reconcile(t.Context(), other))
	_, err := b.Park(t.Context(), other, ParkOptions{Cause: CauseCrash})
	b.must(err)
	b.wants("ses_1 pending")
}

func TestWhatASessionWaitedForIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 3000))
	b.must(b.SetWaiting(t.Context(), map[string]string{"ses_1": "question"}))
	b.park()
	if s := b.wants("ses_1 pending")[0]; s.WaitingFor != "question" {
		t.Errorf("%+v", s)
	}
}

// TestJobsThatNameEachOtherCanBeDecided: each of two sessions waits under the other.
func TestJobsThatNameEachOtherCanBeDecided(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.db.jobs["j1"] = Job{Key: "j1", Kind: "subagent", Session: "ses_1", Child: "ses_2", Status: "running", Raw: []byte("1")}
	b.db.jobs["j2"] = Job{Key: "j2", Kind: "subagent", Session: "ses_2", Child: "ses_1", Status: "running", Raw: []byte("2")}
	b.park()
	b.wants("ses_1 pending")
	if n, err := b.Dismiss(t.Context(), "ses_1", 0); n != 2 || err != nil {
		t.Errorf("dismissed %d, %v", n, err)
	}
	b.wants()
}
