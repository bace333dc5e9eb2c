package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// told keeps what a Resumer says of consents that were carried out.
func (r *resuming) told() func(want ...string) {
	var mu sync.Mutex
	var all []string
	r.config.Settled = func(suspended int64, result Result) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, fmt.Sprint(result.ID, " ", suspended, " ", result.Verdict, " ", result.Reason))
	}
	return func(want ...string) {
		r.t.Helper()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(all, want) {
			r.t.Errorf("told %q, want %q", all, want)
		}
	}
}

// Who clicked has an answer, who watches has none: what came of each delivery is told.
func TestWhatCameOfADeliveryIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		deliver func(r *resuming) error
		want    string
	}{
		"resumed": {func(r *resuming) error {
			r.event(EventStarted, "ses_1")
			r.event(EventProgress, "ses_1")
			return nil
		}, "resumed "},
		"ended at once": {func(*resuming) error { return nil }, "resumed " + EndedAtOnce},
		"refused":       {func(*resuming) error { return &RefusedError{Reason: "no model"} }, "refused no model"},
		"unknown":       {func(*resuming) error { return errors.New("reset") }, "unknown reset"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				told := r.told()
				r.server.deliver = func(context.Context, Delivery) error { return c.deliver(r) }
				if _, err := r.Resume(t.Context(), "ses_1", 0); err != nil {
					t.Fatal(err)
				}
				told("ses_1 5000 " + c.want)
			})
		})
	}
}

func TestARefusalOfWhatWasQueuedIsTold(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, r *resuming) {
		told := r.told()
		r.executes(nil)
		var want []string
		for _, id := range []string{"ses_1", "ses_2", "ses_3", "ses_4"} {
			r.resume(id, VerdictResumed, "")
			want = append(want, id+" 5000 resumed ")
		}
		r.resume("ses_5", VerdictQueued, "")
		r.resume("ses_6", VerdictQueued, "")
		r.resume("ses_6", VerdictAlready, "queued") // consumed nothing
		r.db.fate("ses_5", OutcomeInFlight, "m2")
		r.event(EventSucceeded, "ses_1")
		time.Sleep(time.Second)
		want = append(want, "ses_5 5000 refused "+elsewhere, "ses_6 5000 resumed ")
		told(want...)
	})
}

func TestTheEndOfTheServerIsToldToWhoWaitedForAPlace(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, r *resuming) {
		r.executes(nil)
		for _, id := range []string{"ses_1", "ses_2", "ses_3", "ses_4"} {
			r.resume(id, VerdictResumed, "")
		}
		r.resume("ses_5", VerdictQueued, "")
		told := r.told()
		r.SetServer(nil, nil)
		told("ses_5 5000 refused " + serverEnded)
	})
}

func TestAnExecutionIsKnownToBeOurResume(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *resuming) {
		from := func(id string, want int64) {
			t.Helper()
			if got, err := r.ResumedFrom(t.Context(), id); err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", id, got, err, want)
			}
		}
		r.executes(nil)
		from("ses_1", 0)
		r.resume("ses_1", VerdictResumed, "")
		from("ses_1", 5000)
		r.event(EventStarted, "ses_2") // by its user
		from("ses_2", 0)
		r.event(EventFailed, "ses_1")
		from("ses_1", 0)
		from("ses_9", 0)
	})
}
