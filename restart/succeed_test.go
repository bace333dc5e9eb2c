package restart

import (
	"context"
	"errors"
	"testing"
)

func TestAServerThatCameUnseenIsFollowed(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.begin("inc1", begun)
	for _, id := range []string{"ses_active", "ses_ended", "ses_left"} {
		b.must(b.Ledger.Apply(t.Context(), Event{Kind: EventStarted, Session: id, At: begun + 10}))
	}
	b.must(b.Ledger.Suspend(t.Context(), []string{"ses_active", "ses_ended", "ses_left"}, begun+20))
	b.must(b.Ledger.Unsuspend(t.Context()))
	db := newDatabase()
	db.fate("ses_ended", OutcomeEnded, "m2")
	db.fate("ses_left", OutcomeInFlight, "m")
	next := Incarnation{ID: "inc2", Generation: "v2", Database: serverDB, StartedAt: begun + 100}
	b.must(b.Ledger.Succeed(t.Context(), next, Found{Active: []string{"ses_active"}}, db))
	b.must(b.Ledger.Succeed(t.Context(), next, Found{Active: []string{"ses_active"}}, db)) // again: nothing more

	claims, err := b.Ledger.Claims(t.Context())
	b.must(err)
	if len(claims) != 1 || claims[0] != "ses_active" {
		t.Errorf("claims %v, want the active one", claims)
	}
	list, err := b.Ledger.Pending(t.Context())
	b.must(err)
	if len(list) != 1 || list[0].ID != "ses_left" || list[0].Cause != CauseCrash {
		t.Errorf("pending %+v, want what it left", list)
	}
	if _, err := b.Ledger.Consume(t.Context(), "ses_left", list[0].SuspendedAt); err != nil {
		t.Errorf("it can't be consented to: %v", err)
	}
}

// A park that a crash has broken off after it had cleared, and then a server that we did not start.
func TestSucceedKeepsWhatWasParked(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	b.db.jobs["j"] = Job{Key: "j", Kind: "shell", Session: "ses_idle", Raw: []byte("1")}
	b.crashes("INSERT ON parked")
	if _, err := b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash, At: 5000, Database: serverDB}); err == nil {
		t.Fatal("no error")
	}
	_, err := b.Ledger.db.Exec("DROP TRIGGER crash")
	b.must(err)
	b.reopen()
	b.db.fate("ses_idle", OutcomeEnded, "m")
	b.must(b.Succeed(t.Context(), Incarnation{ID: "inc2", Generation: "v2", Database: serverDB, StartedAt: 6000}, Found{}, b.db))
	b.wants("ses_1 pending", "ses_idle pending")
}

// What was taken in of an incarnation that ended says nothing about the one that
// was adopted before it could be digested: that one goes on.
func TestALateDigestIsNotAboutTheServerThatFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000), claim("ses_2", 2000))
	b.apply(EventStarted, "ses_1", 2000)
	b.apply(EventStarted, "ses_2", 2000)
	b.db.jobs["j"] = Job{Key: "j", Kind: "shell", Session: "ses_job", Raw: []byte("1")}
	b.db.fail["Clear"] = errors.New("locked")
	b.crashes("INSERT ON parked")
	if _, err := b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash, At: 5000, Database: serverDB}); err == nil {
		t.Fatal("no error")
	}
	b.must(b.Succeed(t.Context(), Incarnation{ID: "inc2", Generation: "v2", Database: serverDB, StartedAt: 6000}, Found{Active: []string{"ses_1", "ses_job"}}, b.db))
	b.clock = 6100
	b.apply(EventStarted, "ses_new", 6100)
	b.claimed("ses_1", "ses_job", "ses_new")
	_, err := b.Ledger.db.Exec("DROP TRIGGER crash")
	b.must(err)
	b.wants("ses_2 pending") // digests
	b.claimed("ses_1", "ses_job", "ses_new")
	b.journaled("ses_2", whatSuspended)
	b.must(b.Suspend(t.Context(), []string{"ses_1"}, 6200))
	b.wants("ses_2 pending", "ses_1 blocked")
}

// begunAt is a database that tells when what is in flight in it has begun.
type begunAt struct {
	*fakeDatabase
	at map[string]int64
}

func (db begunAt) InFlight(_ context.Context, since int64) (list []string, err error) {
	for id, at := range db.at {
		if at >= since {
			list = append(list, id)
		}
	}
	return list, nil
}

// What began while nobody of us listened, in a server that was gone before we came, waits
// too, although another server has followed: also where that server's page was never opened.
func TestWhatBeganUnheardIsNotLost(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		b := bare(t)
		before := Incarnation{ID: "inc1", Generation: "v2", Database: serverDB, StartedAt: begun}
		if known {
			b.begin("inc1", begun)
			b.must(b.Ledger.Apply(t.Context(), Event{Kind: EventStarted, Session: "ses_again", At: begun + 5}))
			b.must(b.Ledger.Apply(t.Context(), Event{Kind: EventSucceeded, Session: "ses_again", At: begun + 6}))
		}
		db := begunAt{newDatabase(), map[string]int64{
			"ses_old": begun - 10, "ses_again": begun + 10, "ses_unheard": begun + 20, "ses_active": begun + 30, "ses_over": begun + 40, "ses_new": begun + 110,
		}}
		for id := range db.at {
			db.fate(id, OutcomeInFlight, "m-"+id)
		}
		db.fate("ses_over", OutcomeEnded, "m2")
		next := Incarnation{ID: "inc2", Generation: "v2", Database: serverDB, StartedAt: begun + 100}
		found := Found{Active: []string{"ses_active"}, Asked: begun + 105, Before: before}
		for range 2 { // again: nothing more
			b.must(b.Ledger.Succeed(t.Context(), next, found, db))
		}
		waits := b.wants("ses_again pending", "ses_unheard pending")
		b.claimed("ses_active")
		b.journaled("ses_unheard", whatSuspended)
		for _, w := range waits {
			if _, err := b.Ledger.Consume(t.Context(), w.ID, w.SuspendedAt); err != nil {
				t.Errorf("%s can't be consented to: %v", w.ID, err)
			}
		}
	}
}
