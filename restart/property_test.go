package restart

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// empty makes a new ledger of an old one, and spares the disk: these tests make
// thousands of commits and no crash.
func (b *bundle) empty() {
	b.t.Helper()
	_, err := b.Ledger.db.Exec(`PRAGMA synchronous = OFF; DROP TRIGGER IF EXISTS journal_no_delete;
		DELETE FROM journal; DELETE FROM session; DELETE FROM parked; DELETE FROM intake; DELETE FROM incarnation`)
	b.must(err)
}

// standing is what must not change: every suspension that stands, and every claim.
func (b *bundle) standing() string {
	var all string
	rows, err := sessions(b.Ledger.db, "ORDER BY id")
	b.must(err)
	for _, s := range rows {
		all += fmt.Sprintf("%s %d %d %s %d|", s.ID, s.suspension(), s.Claimed, s.Phase, s.Resumes)
	}
	return all
}

// TestReplayedEventsNeitherMakeNorDestroyASuspension sends random lifecycles in
// random order of sessions, over several incarnations, with consents between;
// after each step any events that were sent before are sent again, and nothing may change.
func TestReplayedEventsNeitherMakeNorDestroyASuspension(t *testing.T) {
	t.Parallel()
	b := bare(t)
	rapid.Check(t, func(r *rapid.T) {
		b.empty()
		b.clock, b.db = 1000, newDatabase()
		b.begin("inc0", b.clock)
		var sent []Event
		kinds := []EventKind{EventStarted, EventStarted, EventSucceeded, EventFailed, EventInterrupted, EventShutdown, EventArchived, EventDeleted, EventProgress}
		for i := range rapid.IntRange(1, 25).Draw(r, "steps") {
			b.clock += 10
			id := rapid.SampledFrom([]string{"ses_a", "ses_b", "ses_c"}).Draw(r, "session")
			switch rapid.SampledFrom([]string{"event", "event", "event", "event", "park", "suspend", "unsuspend", "dismiss", "resume", "put back"}).Draw(r, "act") {
			case "event":
				e := Event{Kind: rapid.SampledFrom(kinds).Draw(r, "kind"), Session: id, At: b.clock}
				b.must(b.Apply(t.Context(), e))
				sent = append(sent, e)
			case "park":
				b.db.fate(id, rapid.SampledFrom([]Outcome{OutcomeEnded, OutcomeUnknown, OutcomeInFlight, OutcomeSuspended}).Draw(r, "fate"), "m")
				if rapid.Bool().Draw(r, "claimed") {
					b.db.claims[id] = claim(id, b.clock-5)
				}
				_, err := b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash, At: b.clock, Database: serverDB})
				b.must(err)
				b.begin(fmt.Sprintf("inc%d", i+1), b.clock+1)
			case "suspend":
				b.must(b.Suspend(t.Context(), []string{id}, b.clock))
			case "unsuspend":
				b.must(b.Unsuspend(t.Context()))
			case "dismiss":
				_, _ = b.Dismiss(t.Context(), id, 0)
			default:
				s, _ := find(b.Ledger.db, id)
				if s == nil {
					break
				}
				if ticket, err := b.Consume(t.Context(), id, s.Suspended); err == nil {
					b.must(b.Delivering(t.Context(), ticket))
					if rapid.Bool().Draw(r, "delivered") {
						b.must(b.Delivered(t.Context(), ticket, ""))
					} else {
						b.must(b.PutBack(t.Context(), ticket, "", ""))
					}
				}
			}
			before := b.standing()
			for range min(len(sent), 4) {
				e := rapid.SampledFrom(sent).Draw(r, "again")
				b.must(b.Apply(t.Context(), e))
				if after := b.standing(); after != before {
					r.Fatalf("%+v again:\n%s\n%s", e, before, after)
				}
			}
			conserved(t, b.Ledger)
			if t.Failed() {
				r.FailNow()
			}
		}
	})
}

// TestEachSuspensionHasOneEnd throws events with any time at a ledger; each suspension has one end.
func TestEachSuspensionHasOneEnd(t *testing.T) {
	t.Parallel()
	b := bare(t)
	rapid.Check(t, func(r *rapid.T) {
		b.empty()
		b.begin("inc", 3)
		for range rapid.IntRange(1, 30).Draw(r, "events") {
			e := Event{
				Kind:    rapid.SampledFrom([]EventKind{EventStarted, EventSucceeded, EventShutdown, EventArchived, EventKind("odd")}).Draw(r, "kind"),
				Session: rapid.SampledFrom([]string{"", "ses_a", "ses_b"}).Draw(r, "session"),
				At:      rapid.Int64Range(0, 20).Draw(r, "at"),
			}
			b.must(b.Apply(t.Context(), e))
			conserved(t, b.Ledger)
			if t.Failed() {
				r.FailNow()
			}
		}
	})
}

// TestEverySessionThatWaitsCanBeDecided: whatever a database says of parents, each
// session that waits is in the family of one that waits too, and is its own head.
func TestEverySessionThatWaitsCanBeDecided(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		f := family{waits: map[string]*session{}, parent: rapid.MapOf(name, name).Draw(t, "parents")}
		for _, id := range rapid.SliceOfDistinct(name, rapid.ID[string]).Draw(t, "waiting") {
			f.waits[id] = &session{ID: id, Suspended: 1}
		}
		for id := range f.waits {
			head := f.head(id)
			if f.waits[head] == nil || f.head(head) != head {
				t.Fatalf("%s waits under %q, which can't be decided: parents %v, waiting %v", id, head, f.parent, slices.Sorted(maps.Keys(f.waits)))
			}
		}
	})
}
