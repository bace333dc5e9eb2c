package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// crashes makes a statement on a table of the ledger fail from now on, as if we had died there.
func (b *bundle) crashes(statement string) {
	b.t.Helper()
	_, err := b.Ledger.db.Exec("CREATE TRIGGER crash BEFORE " + statement + " BEGIN SELECT RAISE(ABORT, 'crash'); END")
	b.must(err)
}

// TestParkBrokenOffAnywhereMakesOneSuspension: "before" and "after" name what Clear
// has come to when we die. What is taken in is seen, whatever else has happened.
func TestParkBrokenOffAnywhereMakesOneSuspension(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"Sweep", "take in", "Clear", "before, crash", "after, crash", "after, crash at the end of digest",
		"after, time is up", "InFlight", "Fates", "end", "Describe"} {
		for _, dismissed := range []bool{false, true} {
			t.Run(fmt.Sprint(step, dismissed), func(t *testing.T) {
				t.Parallel()
				b := setup(t, claim("ses_1", 2000))
				b.apply(EventStarted, "ses_1", 2000)
				b.apply(EventStarted, "ses_2", 2000) // so that Fates is asked
				b.db.jobs["j"] = Job{Key: "j", Kind: "shell", Session: "ses_1", Raw: []byte("1")}
				b.db.inFlight = []string{"ses_1"}
				ctx, cancel := context.WithCancel(t.Context())
				broken := errors.New("broken off")
				switch step {
				case "take in":
					b.crashes("INSERT ON intake")
				case "before, crash":
					b.db.fail["Clear"] = broken
					b.crashes("INSERT ON parked")
				case "after, crash":
					b.crashes("INSERT ON parked")
				case "after, crash at the end of digest":
					b.crashes("DELETE ON intake")
				case "after, time is up":
					b.db.onClear = func() { b.db.onClear = nil; cancel() }
				case "end":
					b.crashes("UPDATE OF ended_at ON incarnation")
				default:
					b.db.fail[step] = broken
				}
				cleared := false
				p, err := b.Park(ctx, b.db, ParkOptions{Cause: CauseCrash, At: 5000, Database: serverDB, Cleared: func() { cleared = true }})
				if step == "Describe" {
					if err != nil || len(p.Warnings) != 1 || !errors.Is(p.Warnings[0], broken) {
						t.Fatalf("%v, %v", err, p.Warnings)
					}
				} else if err == nil {
					t.Fatal("no error")
				}
				cancel()
				if empty := len(b.db.claims)+len(b.db.jobs) == 0; cleared != empty {
					t.Errorf("cleared %v, empty %v", cleared, empty)
				}
				clear(b.db.fail)
				_, err = b.Ledger.db.Exec("DROP TRIGGER IF EXISTS crash")
				b.must(err)
				b.reopen()
				if recorded := len(b.pending()); (step == "Sweep" || step == "take in") != (recorded == 0) {
					t.Errorf("%d are shown", recorded)
				}
				want := []string{"ses_1 pending", "ses_2 pending"}
				if dismissed && len(b.pending()) > 0 {
					_, err := b.Dismiss(t.Context(), "ses_1", 0)
					b.must(err)
					want = want[1:]
				}
				b.reopen()
				b.park()
				b.wants(want...)
				if words := b.words("ses_1"); words[0] != whatSuspended || slices.Contains(words[1:], whatSuspended) {
					t.Errorf("journal %q", words)
				}
				if len(b.db.claims)+len(b.db.jobs) != 0 {
					t.Error("not all is cleared")
				}
				var left, parked int
				b.must(b.Ledger.db.QueryRow("SELECT (SELECT count(*) FROM intake), (SELECT count(*) FROM parked)").Scan(&left, &parked))
				if left != 0 || parked != 2 {
					t.Errorf("%d intakes are left, %d rows are parked", left, parked)
				}
			})
		}
	}
}

// TestWhatWasTakenInIsSeenAtOnce: also before Park has come to it.
func TestWhatWasTakenInIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	asked := 0
	for name, ask := range map[string]func(){
		"Pending": func() { b.wants("ses_1 pending") },
		"Resolve": func() {
			if id, err := b.Resolve(t.Context(), "ses"); err != nil || id != "ses_1" {
				t.Errorf("%q, %v", id, err)
			}
		},
		"Show": func() {
			if _, pending, _, err := b.Show(t.Context(), "ses_1"); err != nil || !pending {
				t.Errorf("%v, %v", pending, err)
			}
		},
	} {
		b.empty()
		b.begin("inc1", begun)
		b.db.claims["ses_1"] = claim("ses_1", 2000)
		_, err := b.Park(t.Context(), b.db, ParkOptions{Database: serverDB, At: 5000, Cleared: func() { asked++; ask() }})
		b.must(err)
		b.wants("ses_1 pending")
		if words := b.words("ses_1"); !slices.Equal(words, []string{whatSuspended}) {
			t.Errorf("%s: %q", name, words)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times", asked)
	}
}

// TestAClaimThatComesBackAsItWasIsClearedOnly: the server's database is synced
// less often than ours, so that a power failure can undo what was cleared there.
func TestAClaimThatComesBackAsItWasIsClearedOnly(t *testing.T) {
	t.Parallel()
	b := bare(t, claim("ses_1", 10), claim("ses_2", 20))
	job := Job{Key: "j", Kind: "shell", Session: "ses_3", Raw: []byte("1")}
	b.db.jobs["j"] = job
	b.park()
	for _, id := range []string{"ses_1", "ses_3"} {
		_, err := b.Dismiss(t.Context(), id, 0)
		b.must(err)
	}
	b.db.claims["ses_1"], b.db.claims["ses_2"], b.db.jobs["j"] = claim("ses_1", 10), claim("ses_2", 20), job
	b.park()
	b.wants("ses_2 pending")
	b.journaled("ses_1", whatSuspended, whatDismissed)
	b.journaled("ses_2", whatSuspended)
	b.journaled("ses_3", whatSuspended, whatDismissed)
	if len(b.db.claims)+len(b.db.jobs) != 0 {
		t.Error("not all is cleared")
	}
}

// TestAJobKeepsItsSessionWaiting, whatever was known of a session that is not at work itself.
func TestAJobKeepsItsSessionWaiting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before func(b *bundle)
		want   []string
	}{
		"never seen":   {func(*bundle) {}, []string{whatSuspended}},
		"at work":      {func(b *bundle) { b.apply(EventStarted, "ses_1", 2000) }, []string{whatSuspended}},
		"was stopped":  {func(b *bundle) { b.must(b.Suspend(b.t.Context(), []string{"ses_1"}, 3000)) }, []string{whatSuspended}},
		"consented to": {func(b *bundle) { b.consented() }, []string{whatSuspended, whatConsented, whatRefused}},
		"being resumed": {func(b *bundle) { b.must(b.Delivering(b.t.Context(), b.consented())) },
			[]string{whatSuspended, whatConsented, whatDelivered, whatSuspended}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			c.before(b)
			b.db.fate("ses_1", OutcomeEnded, "m2")
			b.db.jobs["j"] = Job{Key: "j", Kind: "shell", Session: "ses_1", Raw: []byte("1")}
			b.park()
			if s := b.pending(); len(s) != 1 || s[0].ID != "ses_1" || s[0].State != StatePending || len(s[0].Jobs) != 1 {
				t.Errorf("%+v", s)
			}
			b.journaled("ses_1", c.want...)
		})
	}
}

// consented makes ses_1 a suspension of an earlier incarnation that is consented to.
func (b *bundle) consented() Ticket {
	b.t.Helper()
	b.apply(EventStarted, "ses_1", 2000)
	b.park()
	b.begin("inc2", 6000)
	ticket, err := b.Consume(b.t.Context(), "ses_1", 5000)
	b.must(err)
	return ticket
}
