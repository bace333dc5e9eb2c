package restart

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A consent may wait for hours for its place: it is looked at again before it is sent.
func TestAQueuedConsentIsCheckedAgainBeforeItIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(r *resuming)
		shown   []string
		reason  string
		words   []string
	}{
		"nothing happened":        {func(*resuming) {}, nil, "", []string{whatDelivered}},
		"it went on":              {func(r *resuming) { r.db.fate("ses_5", OutcomeEnded, "m2") }, nil, "", []string{whatSettled}},
		"deleted":                 {func(r *resuming) { r.db.fate("ses_5", OutcomeGone, "") }, nil, "", []string{whatSettled}},
		"archived":                {func(r *resuming) { r.db.fate("ses_5", OutcomeArchived, "m") }, nil, "", []string{whatSettled}},
		"it runs, unseen":         {func(r *resuming) { r.server.setActive("ses_5") }, nil, "", []string{whatSettled}},
		"it runs elsewhere":       {func(r *resuming) { r.db.fate("ses_5", OutcomeInFlight, "m2") }, []string{"ses_5 pending"}, elsewhere, []string{whatRefused}},
		"the directory is gone":   {func(r *resuming) { r.config.Exists = func(string) bool { return false } }, []string{"ses_5 pending"}, "its directory is gone: /", []string{whatRefused}},
		"the database is locked":  {func(r *resuming) { r.db.fail["Fates"] = errors.New("locked") }, []string{"ses_5 pending"}, "the server's database can't be read: locked", []string{whatRefused}},
		"the server can't answer": {func(r *resuming) { r.server.fail = errors.New("500") }, []string{"ses_5 pending"}, "the server can't say what it executes: 500", []string{whatRefused}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(t *testing.T, r *resuming) {
				r.executes(nil)
				for _, id := range []string{"ses_1", "ses_2", "ses_3", "ses_4"} {
					r.resume(id, VerdictResumed, "")
				}
				r.resume("ses_5", VerdictQueued, "")
				c.prepare(r)
				r.event(EventSucceeded, "ses_1")
				time.Sleep(time.Second)
				synctest.Wait()
				list := r.wants(c.shown...)
				if len(list) == 1 && list[0].Reason != c.reason {
					t.Errorf("reason %q, want %q", list[0].Reason, c.reason)
				}
				r.journaled("ses_5", append([]string{whatSuspended, whatConsented}, c.words...)...)
				if sent := len(r.server.delivered()) - 4; (sent == 1) != (c.words[0] == whatDelivered) {
					t.Errorf("sent %d times", sent)
				}
				if r.mu.Lock(); (r.places["ses_5"] == time.Time{}) != (c.words[0] != whatDelivered) {
					t.Error("its place")
				}
				r.mu.Unlock()
			})
		})
	}
}

// Early servers and v1 accept at once; the started event comes after that.
func TestPlacesAreKnownAfterARestartAlsoWhenAcceptedBeforeItStarted(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, r *resuming) {
		r.server.deliver = func(_ context.Context, d Delivery) error {
			time.AfterFunc(time.Second, func() { r.event(EventStarted, d.Session) })
			return nil
		}
		for _, id := range []string{"ses_1", "ses_2", "ses_3", "ses_4"} {
			r.resume(id, VerdictResumed, "")
		}
		r.must(r.Suspend(t.Context(), []string{"ses_1", "ses_2", "ses_3", "ses_4"}, 7000)) // a sleep is announced, and over
		r.must(r.Unsuspend(t.Context()))
		r.server.setActive("ses_1", "ses_2", "ses_3", "ses_4")
		r.Resumer.Close()
		r.Resumer = NewResumer(r.Ledger, ResumerConfig{})
		r.SetServer(r.server, r.db)
		r.resume("ses_5", VerdictQueued, "")
		// An execution that its user began after ours has ended is not ours.
		r.event(EventSucceeded, "ses_1")
		r.event(EventStarted, "ses_1")
		synctest.Wait()
		if ours, err := r.live(t.Context(), "AND ours = 1"); err != nil || len(ours) != 4 {
			t.Errorf("%v, %v", ours, err) // ses_2, ses_3, ses_4, and ses_5 in the place of ses_1
		}
	})
}

func TestAServerThatFreezesKeepsNoCallerWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		frozen func(r *resuming)
		words  []string
		shown  []string
	}{
		"it thaws":       {func(r *resuming) { r.event(EventStarted, "ses_1") }, []string{whatDelivered}, nil},
		"it is parked":   {func(r *resuming) { r.SetServer(nil, nil); r.clock = 90000; r.park() }, []string{whatRefused}, []string{"ses_1 pending"}},
		"supervisor too": {func(r *resuming) { r.SetServer(nil, nil); r.must(r.Recover(r.t.Context(), nil, r.db)) }, []string{whatUnknown}, []string{"ses_1 unknown"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				frozen := make(chan struct{})
				r.server.deliver = func(ctx context.Context, _ Delivery) error {
					r.server.freeze(frozen)
					<-ctx.Done()
					return ctx.Err()
				}
				began := time.Now()
				r.resume("ses_1", VerdictUnknown, "the server doesn't answer; see: intermission show ses_1")
				if d := time.Since(began); d != 30*time.Second {
					t.Errorf("after %s", d)
				}
				r.wants("ses_1 resuming")
				r.resume("ses_1", VerdictAlready, "resuming")
				close(frozen)
				c.frozen(r)
				synctest.Wait()
				r.wants(c.shown...)
				r.journaled("ses_1", append([]string{whatSuspended, whatConsented}, c.words...)...)
				if len(r.server.delivered()) != 1 {
					t.Error("it was sent again")
				}
			})
		})
	}
}

func TestAServerThatIsFrozenBeforeTheConsent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *resuming) {
		r.server.freeze(make(chan struct{}))
		r.resume("ses_1", VerdictRefused, "can't say what it executes")
		r.wants("ses_1 pending")
	})
}
