package restart

import (
	"errors"
	"strings"
	"testing"
)

// TestTheConsumingStatementIsTheGuard runs the statement alone, as two callers would that have read the same state.
func TestTheConsumingStatementIsTheGuard(t *testing.T) {
	t.Parallel()
	b := suspended(t)
	won := b.consumes() + b.consumes()
	s, err := find(b.Ledger.db, "ses_1")
	b.must(err)
	if won != 1 || s.Suspended != 0 || s.Consumed != 5000 || s.Phase != phaseQueued || s.Consent != 1 {
		t.Errorf("%d won, %+v", won, s)
	}
	// Also a row that kept its time, as no statement of ours leaves it, can't be consumed again.
	_, err = b.Ledger.db.Exec("UPDATE session SET time_suspended = consumed, consumed = 0")
	b.must(err)
	if again := b.consumes(); again != 0 {
		t.Error("consumed while it is queued")
	}
	_, err = b.Ledger.db.Exec("UPDATE session SET time_suspended = NULL, phase = '', consumed = 0")
	b.must(err)
	_, err = b.Ledger.db.Exec("UPDATE session SET time_suspended = 5000")
	b.must(err)
}

// consumes runs the consuming statement alone, and counts the rows that it gave.
func (b *bundle) consumes() (n int) {
	b.t.Helper()
	rows, err := b.Ledger.db.Query(consumeOne, "ses_1", 5000)
	b.must(err)
	defer rows.Close()
	for rows.Next() {
		n++
	}
	b.must(rows.Err())
	return n
}

func TestAStaleMessageSaysWhatItIs(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		const want = "it was replaced); see: intermission show ses_1"
		result, err := r.Resume(t.Context(), "ses_1", 4000)
		r.must(err)
		if result.Verdict != VerdictAlready || !strings.Contains(result.Reason, want) {
			t.Errorf("resume: %+v", result)
		}
		var stale *StaleError
		if _, err := r.Dismiss(t.Context(), "ses_1", 4000); !errors.As(err, &stale) || !errors.Is(err, ErrNotPending) || !strings.Contains(err.Error(), want) {
			t.Errorf("dismiss: %v", err)
		}
		r.wants("ses_1 pending")
		r.event(EventDeleted, "ses_1")
		for _, at := range []int64{0, 5000} {
			result, err = r.Resume(t.Context(), "ses_1", at)
			if err != nil || result.Verdict != VerdictAlready || result.Reason != "the session was deleted" {
				t.Errorf("deleted: %+v, %v", result, err)
			}
		}
		if _, err := r.Dismiss(t.Context(), "ses_1", 5000); !errors.Is(err, ErrNotPending) || errors.As(err, &stale) {
			t.Errorf("nothing waits: %v", err)
		}
	})
}

func TestOfOneStopTheLongestAtWorkComesFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for id, at := range map[string]int64{"ses_a": 2300, "ses_b": 2100, "ses_c": 2200, "ses_d": 2100} {
		b.apply(EventStarted, id, at)
	}
	b.must(b.Suspend(t.Context(), []string{"ses_a", "ses_b", "ses_c", "ses_d"}, 3000))
	b.park()
	b.wants("ses_b pending", "ses_d pending", "ses_c pending", "ses_a pending")
}

func TestAnIntakeThatCannotBeReadNamesTheFileAndAnAct(t *testing.T) {
	t.Parallel()
	b := setup(t, claim("ses_1", 2000))
	for _, content := range []string{"", "{", "[]", `{"claims":7}`, "\x00\xff"} {
		_, err := b.Ledger.db.Exec("DELETE FROM intake; INSERT INTO intake (time, content) VALUES (1, ?)", content)
		b.must(err)
		_, parked := b.Park(t.Context(), b.db, ParkOptions{Database: serverDB})
		_, opened := Open(b.path, b.now)
		for _, err := range []error{parked, opened} {
			if err == nil || !strings.Contains(err.Error(), b.path) || !strings.Contains(err.Error(), "move it away to begin a new one") {
				t.Errorf("%q: %v", content, err)
			}
		}
	}
}

func TestASessionWithLostJobsIsToldTheConfiguredTextAndTheJobs(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *resuming) {
		_, err := r.Ledger.db.Exec(`INSERT INTO parked (database, kind, key, session, job, text, raw, time_parked)
			VALUES ('/data/opencode.db', 'job', 'j', 'ses_1', 'shell', 'make all', '1', 1)`)
		r.must(err)
		r.config.Text = "go on where you were"
		r.executes(nil)
		r.resume("ses_1", VerdictResumed, "")
		r.resume("ses_2", VerdictResumed, "")
		told := r.server.delivered()
		if text := told[0].Text; !strings.HasPrefix(text, "go on where you were\n\nThe server was restarted.") || !strings.HasSuffix(text, "\n- shell: make all") {
			t.Errorf("told %q", text)
		}
		if told[1].Text != "" { // the server's own way to go on is better than a text
			t.Errorf("told %q", told[1].Text)
		}
	})
}
