package restart

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
)

// all says of each session that it is gone, or there.
func (db *fakeDatabase) all(gone bool, list ...string) {
	for _, id := range list {
		if gone {
			db.fate(id, OutcomeGone, "")
		} else {
			db.fate(id, OutcomeSuspended, "m")
		}
	}
}

const absent = "its session is not in the server's database " + serverDB

// A disk that isn't mounted, or a directory that was moved: the server makes a new database there.
func TestADatabaseThatWasReplacedSettlesNothing(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"while it is stopped", "before it is parked", "a server comes unseen"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.witness()
			old := []string{"ses_1", "ses_2", "ses_witness"}
			b.apply(EventStarted, "ses_1", 2000)
			b.apply(EventStarted, "ses_2", 2001)
			switch when {
			case "before it is parked":
				b.db.all(true, old...)
				b.park()
			case "a server comes unseen":
				b.db.all(true, old...)
				b.must(b.Succeed(t.Context(), Incarnation{ID: "inc2", Generation: "v2", Database: serverDB, StartedAt: 5500}, Found{}, b.db))
				b.park()
			default:
				b.park()
				b.db.all(true, old...)
			}
			// The user works in the new database: that makes it no witness.
			b.clock = 6000
			b.begin("inc3", 5700)
			b.apply(EventStarted, "ses_new", 6000)
			b.apply(EventSucceeded, "ses_new", 6001)
			for range 2 {
				b.must(b.Reconcile(t.Context(), b.db))
			}
			for _, s := range b.wants("ses_1 blocked", "ses_2 blocked") {
				if s.Reason != absent {
					t.Errorf("%s: %q", s.ID, s.Reason)
				}
			}
			// It is put back.
			b.db.all(false, old...)
			b.db.fate("ses_new", OutcomeGone, "")
			b.must(b.Reconcile(t.Context(), b.db))
			for _, s := range b.wants("ses_1 pending", "ses_2 pending") {
				if s.Reason != "" {
					t.Errorf("%s: %q", s.ID, s.Reason)
				}
			}
			// And then one of them is deleted.
			b.db.all(true, "ses_2")
			b.must(b.Reconcile(t.Context(), b.db))
			b.wants("ses_1 pending")
			b.journaled("ses_2", whatSuspended, whatSettled)
		})
	}
}

func TestASessionThatIsGoneWithoutAWitnessIsLeftToThePerson(t *testing.T) {
	for _, act := range []string{"consent", "dismiss"} {
		t.Run(act, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				r.db.all(true, "ses_1")
				r.must(r.Reconcile(t.Context(), r.db))
				list, err := r.Resumer.Pending(t.Context())
				if err != nil || len(list) != 1 || list[0].State != StateBlocked || list[0].Reason != absent {
					t.Fatalf("%+v, %v", list, err)
				}
				if act == "consent" {
					r.resume("ses_1", VerdictRefused, "the session was deleted")
					r.journaled("ses_1", whatSuspended, whatSettled)
				} else if n, err := r.Dismiss(t.Context(), "ses_1", 5000); err != nil || n != 1 {
					t.Errorf("%d, %v", n, err)
				}
				r.wants()
				if len(r.server.delivered()) != 0 {
					t.Error("it was delivered")
				}
			})
		})
	}
}

func TestASessionThatRunsInAnotherServer(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *resuming) {
		r.db.fate("ses_1", OutcomeInFlight, "m2")
		r.resume("ses_1", VerdictRefused, "it runs in another OpenCode server")
		r.must(r.Reconcile(t.Context(), r.db))
		if s := r.wants("ses_1 elsewhere", "ses_2 pending")[0]; s.Reason != "it runs in another OpenCode server" {
			t.Errorf("%+v", s)
		}
		r.resume("ses_1", VerdictRefused, "it runs in another OpenCode server")
		r.db.fate("ses_1", OutcomeEnded, "m2")
		r.must(r.Reconcile(t.Context(), r.db))
		r.wants("ses_2 pending")
		r.journaled("ses_1", whatSuspended, whatSettled)

		r.db.fate("ses_2", OutcomeInFlight, "m2")
		r.must(r.Reconcile(t.Context(), r.db))
		r.wants("ses_2 elsewhere")
		if n, err := r.Dismiss(t.Context(), "ses_2", 0); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
		if len(r.server.delivered()) != 0 {
			t.Error("it was delivered")
		}
	})
}

// It stood in flight when it was suspended: that is no other server.
func TestInFlightAsItWasSuspendedIsPending(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.db.fate("ses_1", OutcomeInFlight, "m")
		r.must(r.Reconcile(t.Context(), r.db))
		r.wants("ses_1 pending")
		r.executes(nil)
		r.resume("ses_1", VerdictResumed, "")
	})
}

func TestALedgerOfTheFirstVersionIsBroughtForward(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: 5000, db: newDatabase()}
	old, err := sql.Open("sqlite", dataSource(b.path))
	b.must(err)
	_, err = old.Exec(schema1 + fmt.Sprintf(`; PRAGMA user_version = 1; PRAGMA application_id = %d;
		INSERT INTO session (id, database, incarnation, time_claimed, time_suspended, last_suspended, cause)
		VALUES ('ses_1', '/data/opencode.db', 'inc1', 2000, 3000, 3000, 'crash')`, applicationID))
	b.must(err)
	b.must(old.Close())
	for range 2 {
		b.open()
		if s := b.wants("ses_1 pending")[0]; s.SuspendedAt != 3000 {
			t.Errorf("%+v", s)
		}
		b.must(b.Reconcile(t.Context(), located{b.db, serverDB}))
		var version int
		b.must(b.Ledger.db.QueryRow("PRAGMA user_version").Scan(&version))
		if version != schemaVersion {
			t.Errorf("version %d", version)
		}
		b.must(b.Close())
	}
}
