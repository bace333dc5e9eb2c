package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// resuming is a Resumer with a server that is up, on a ledger with suspended sessions.
type resuming struct {
	*bundle
	*Resumer
	server *fakeServer
	tick   atomic.Int64 // the server's clock, in ms after the ledger's
}

// inBubble runs f with n sessions suspended, ses_1 first, in a bubble of fake time.
func inBubble(t *testing.T, n int, f func(t *testing.T, r *resuming)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for i := range n {
			b.apply(EventStarted, fmt.Sprintf("ses_%d", i+1), 2000)
		}
		b.park()
		b.begin("inc2", 6000)
		b.clock = 6500
		r := &resuming{bundle: b, Resumer: NewResumer(b.Ledger, ResumerConfig{Exists: func(dir string) bool { return dir != "/gone" }}), server: &fakeServer{}}
		r.SetServer(r.server, b.db)
		f(t, r)
		r.Resumer.Close()
	})
}

// event applies and observes an event, as the supervisor does.
func (r *resuming) event(kind EventKind, id string) {
	r.t.Helper()
	e := Event{Kind: kind, Session: id, At: 6500 + r.tick.Add(1)}
	r.must(r.Apply(r.t.Context(), e))
	r.Observe(e)
}

// executes makes Deliver start an execution that has settled when end is closed.
func (r *resuming) executes(end <-chan struct{}) {
	var mu sync.Mutex
	r.server.deliver = func(ctx context.Context, d Delivery) error {
		mu.Lock()
		r.event(EventStarted, d.Session)
		r.event(EventProgress, d.Session)
		mu.Unlock()
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *resuming) resume(id string, want Verdict, reason string) {
	r.t.Helper()
	result, err := r.Resume(r.t.Context(), id, 0)
	r.must(err)
	if result.Verdict != want || !strings.Contains(result.Reason, reason) || result.ID != id {
		r.t.Fatalf("%+v, want %s (%s)", result, want, reason)
	}
}

func TestOneSuspensionTwentyClicks(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.executes(nil)
		var mu sync.Mutex
		count := map[Verdict]int{}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				result, err := r.Resume(t.Context(), "ses_1", 5000)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				count[result.Verdict]++
				mu.Unlock()
			})
		}
		wg.Wait()
		if count[VerdictResumed] != 1 || count[VerdictAlready] != 19 || len(r.server.delivered()) != 1 {
			t.Errorf("%v, %d deliveries", count, len(r.server.delivered()))
		}
		r.wants()
		r.resume("ses_1", VerdictAlready, "it was resumed")
	})
}

func TestAtMostFourExecuteAndTheOthersWaitTheirTurn(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, r *resuming) {
		r.executes(nil)
		for i := range 4 {
			r.resume(fmt.Sprintf("ses_%d", i+1), VerdictResumed, "")
		}
		r.server.setActive("ses_1", "ses_2", "ses_3", "ses_4")
		r.resume("ses_5", VerdictQueued, "4 resumed sessions execute")
		r.resume("ses_6", VerdictQueued, "")
		r.resume("ses_6", VerdictAlready, "queued")
		time.Sleep(time.Minute) // of the bubble: nothing ends
		synctest.Wait()
		r.wants("ses_5 queued", "ses_6 queued")
		r.event(EventSucceeded, "ses_3")
		time.Sleep(time.Second)
		synctest.Wait()
		r.wants("ses_6 queued")
		// The end of ses_1 is missed: the server is asked.
		r.server.setActive("ses_2", "ses_4", "ses_5")
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wants()
		var order []string
		for _, d := range r.server.delivered() {
			order = append(order, d.Session)
		}
		if !slices.Equal(order, []string{"ses_1", "ses_2", "ses_3", "ses_4", "ses_5", "ses_6"}) {
			t.Errorf("delivered %q", order)
		}
	})
}

func TestAcceptedAndThenNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		start := time.Now()
		r.resume("ses_1", VerdictResumed, "ended at once")
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("after %s", d)
		}
		r.wants()
		r.claimed()
	})
}

func TestAcceptedAndActiveWithoutAnEvent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.server.deliver = func(context.Context, Delivery) error { r.server.setActive("ses_1"); return nil }
		r.resume("ses_1", VerdictResumed, "")
		r.claimed("ses_1")
	})
}

func TestStartedAndEndedAtOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.server.deliver = func(context.Context, Delivery) error {
			r.event(EventStarted, "ses_1")
			r.event(EventSucceeded, "ses_1")
			return nil
		}
		r.resume("ses_1", VerdictResumed, "ended at once")
		r.claimed()
	})
}

func TestDeliverThatBlocksIsSeenToRun(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.server.deliver = func(ctx context.Context, _ Delivery) error {
			r.server.setActive("ses_1") // and its event is lost
			<-ctx.Done()
			return ctx.Err()
		}
		r.resume("ses_1", VerdictResumed, "")
		r.claimed("ses_1")
	})
}

func TestResumeAlwaysFails(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.server.deliver = func(context.Context, Delivery) error {
			r.db.fate("ses_1", OutcomeSuspended, fmt.Sprint("trace", len(r.server.delivered())))
			return &RefusedError{Reason: "500: no model"}
		}
		for i := range 3 {
			r.resume("ses_1", VerdictRefused, "500: no model")
			if s := r.wants("ses_1 pending")[0]; s.SuspendedAt != 5000 || s.Reason != "500: no model" {
				t.Errorf("%+v", s)
			}
			time.Sleep(time.Hour)
			if n := len(r.server.delivered()); n != i+1 {
				t.Fatalf("%d deliveries after %d clicks", n, i+1)
			}
		}
	})
}

func TestTheConnectionBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		arrival Arrival
		verdict Verdict
		shown   []string
	}{
		"arrived":     {Arrived, VerdictResumed, nil},
		"not arrived": {NotArrived, VerdictRefused, []string{"ses_1 pending"}},
		"unknown":     {ArrivalUnknown, VerdictUnknown, []string{"ses_1 unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				r.server.deliver = func(context.Context, Delivery) error { return errors.New("connection reset") }
				r.server.lookup = func(d Delivery) (Arrival, error) {
					if d.Suspended != 5000 {
						t.Errorf("%+v", d)
					}
					return c.arrival, nil
				}
				r.resume("ses_1", c.verdict, "")
				r.wants(c.shown...)
				if len(r.server.delivered()) != 1 {
					t.Error("delivered again by itself")
				}
			})
		})
	}
}

func TestTheServerGoesInTheMiddle(t *testing.T) {
	inBubble(t, 6, func(t *testing.T, r *resuming) {
		r.server.deliver = func(ctx context.Context, _ Delivery) error { <-ctx.Done(); return ctx.Err() }
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() { r.resume(fmt.Sprintf("ses_%d", i+1), VerdictUnknown, "server ended") })
		}
		synctest.Wait()
		r.resume("ses_5", VerdictQueued, "")
		r.SetServer(nil, nil)
		wg.Wait()
		r.wants("ses_1 resuming", "ses_2 resuming", "ses_3 resuming", "ses_4 resuming", "ses_5 pending", "ses_6 pending")
		r.resume("ses_6", VerdictRefused, "server is down")
		r.db.fate("ses_1", OutcomeInFlight, "m2")
		r.clock = 9000
		_, err := r.Park(t.Context(), r.db, ParkOptions{Cause: CauseCrash})
		r.must(err)
		r.wants("ses_2 pending", "ses_3 pending", "ses_4 pending", "ses_5 pending", "ses_6 pending", "ses_1 pending")
		list, err := r.Resumer.Pending(t.Context())
		r.must(err)
		if list[0].State != StateBlocked || list[0].Reason != "the server is down" {
			t.Errorf("%+v", list[0])
		}
	})
}

func TestTheServerIsParkedBeforeTheBrokenConnectionIsDecided(t *testing.T) {
	for mark, want := range map[string]Verdict{"m": VerdictRefused, "m2": VerdictResumed} {
		t.Run(mark, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				r.server.deliver = func(context.Context, Delivery) error { return errors.New("connection reset") }
				var wg sync.WaitGroup
				wg.Go(func() { r.resume("ses_1", want, "") })
				synctest.Wait() // the lookup has failed as well
				r.wants("ses_1 resuming")
				r.db.fate("ses_1", OutcomeEnded, mark)
				_, err := r.Park(t.Context(), r.db, ParkOptions{Cause: CauseCrash, At: 9000})
				r.must(err)
				r.SetServer(nil, nil)
				wg.Wait()
			})
		})
	}
}

func TestChecksBeforeConsent(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *resuming)
		verdict Verdict
		reason  string
		shown   []string
	}{
		"the directory is gone": {func(r *resuming) {
			_, err := r.Ledger.db.Exec(`UPDATE session SET description = '{"directory":"/gone"}'`)
			r.must(err)
		}, VerdictRefused, "/gone", []string{"ses_1 pending"}},
		"it runs already": {func(r *resuming) { r.server.setActive("ses_1") }, VerdictAlready, "runs already", nil},
		"deleted":         {func(r *resuming) { r.db.fate("ses_1", OutcomeGone, "") }, VerdictRefused, "deleted", nil},
		"archived":        {func(r *resuming) { r.db.fate("ses_1", OutcomeArchived, "m") }, VerdictRefused, "archived", nil},
		"went on":         {func(r *resuming) { r.db.fate("ses_1", OutcomeEnded, "m2") }, VerdictAlready, "without us", nil},
		"404 at the delivery": {func(r *resuming) {
			r.server.deliver = func(context.Context, Delivery) error { return &RefusedError{Gone: true, Reason: "404"} }
		}, VerdictRefused, "404", nil},
		"the database can't be read": {func(r *resuming) { r.db.fail["Fates"] = errors.New("locked") }, VerdictRefused, "locked", []string{"ses_1 pending"}},
		"another database": {func(r *resuming) {
			_, err := r.Ledger.db.Exec(`UPDATE session SET database = '/else.db'`)
			r.must(err)
		}, VerdictRefused, "/else.db", []string{"ses_1 pending"}},
		"the server is down": {func(r *resuming) { r.SetServer(nil, nil) }, VerdictRefused, "down", []string{"ses_1 pending"}},
		"dismissed": {func(r *resuming) {
			_, err := r.Dismiss(r.t.Context(), "ses_1", 0)
			r.must(err)
		}, VerdictAlready, "dismissed", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				c.prepare(r)
				r.resume("ses_1", c.verdict, c.reason)
				r.wants(c.shown...)
				if name != "404 at the delivery" && len(r.server.delivered()) != 0 {
					t.Error("it was delivered")
				}
			})
		})
	}
}

func TestUnknownSessionAndStaleClick(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		if _, err := r.Resume(t.Context(), "ses_none", 0); !errors.Is(err, ErrNotPending) {
			t.Error(err)
		}
		result, err := r.Resume(t.Context(), "ses_1", 4000)
		if err != nil || result.Verdict != VerdictAlready {
			t.Errorf("%+v, %v", result, err)
		}
		r.wants("ses_1 pending")
	})
}

func TestTheCallerGoesAndTheDeliveryDoesNot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		begin := make(chan struct{})
		r.server.deliver = func(context.Context, Delivery) error { <-begin; r.event(EventStarted, "ses_1"); return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Resume(ctx, "ses_1", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		r.wants("ses_1 resuming")
		close(begin)
		synctest.Wait()
		r.wants()
		r.claimed("ses_1")
	})
}

func TestAResumerTakesOverThePlacesOfTheOneBefore(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, r *resuming) {
		r.executes(nil)
		for i := range 4 {
			r.resume(fmt.Sprintf("ses_%d", i+1), VerdictResumed, "")
		}
		r.server.setActive("ses_1", "ses_2", "ses_3", "ses_4")
		r.Resumer.Close()
		r.Resumer = NewResumer(r.Ledger, ResumerConfig{})
		r.SetServer(r.server, r.db)
		r.resume("ses_5", VerdictQueued, "")
	})
}

// A server that answers with a failure is done with the request: what its database
// doesn't show, did not happen.
func TestAFailureThatWasAnsweredIsSure(t *testing.T) {
	for name, c := range map[string]struct {
		mark    string // after the failure
		active  []string
		verdict Verdict
		shown   string
	}{
		"nothing happened":  {"m", nil, VerdictRefused, "ses_1 pending"},
		"it left a trace":   {"m2", nil, VerdictUnknown, "ses_1 unknown"},
		"it works all over": {"m", []string{"ses_1"}, VerdictUnknown, "ses_1 unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				r.server.lookup = func(Delivery) (Arrival, error) { return ArrivalUnknown, nil }
				r.server.deliver = func(context.Context, Delivery) error {
					r.db.fate("ses_1", OutcomeSuspended, c.mark)
					r.server.setActive(c.active...)
					return &AnsweredError{Reason: "500"}
				}
				r.resume("ses_1", c.verdict, "500")
				r.server.setActive()
				r.wants(c.shown)
			})
		})
	}
}
