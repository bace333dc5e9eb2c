package restart

import "testing"

const hour = 3_600_000

// The clock is set back by an hour while a server runs: what happens then is news all the same.
func TestEventsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T) *bundle {
		b := bare(t)
		b.clock = 10 * hour
		b.begin("inc1", b.clock)
		b.clock += 1000
		b.apply(EventStarted, "ses_1", b.clock)
		b.must(b.Suspend(t.Context(), []string{"ses_1"}, b.clock))
		b.park()
		b.begin("inc2", b.clock)
		b.apply(EventStarted, "ses_2", b.clock+1)
		b.clock -= hour
		return b
	}
	at := func(b *bundle) int64 { b.clock += 20; return b.clock - 3 }
	for name, c := range map[string]struct {
		steps   []EventKind
		session string
		claims  []string
		shown   []string
	}{
		"a start":                          {[]EventKind{EventStarted}, "ses_3", []string{"ses_2", "ses_3"}, []string{"ses_1 pending"}},
		"a start and its end":              {[]EventKind{EventStarted, EventSucceeded}, "ses_3", []string{"ses_2"}, []string{"ses_1 pending"}},
		"an end":                           {[]EventKind{EventFailed}, "ses_2", nil, []string{"ses_1 pending"}},
		"an end, and a start":              {[]EventKind{EventInterrupted, EventStarted}, "ses_2", []string{"ses_2"}, []string{"ses_1 pending"}},
		"what waited goes on":              {[]EventKind{EventStarted}, "ses_1", []string{"ses_1", "ses_2"}, nil},
		"what waited is deleted":           {[]EventKind{EventDeleted}, "ses_1", []string{"ses_2"}, nil},
		"a shutdown":                       {[]EventKind{EventStarted, EventShutdown}, "ses_3", []string{"ses_2"}, []string{"ses_3 blocked", "ses_1 pending"}},
		"the same again, and its end late": {[]EventKind{EventStarted, EventStarted, EventSucceeded, EventSucceeded}, "ses_3", []string{"ses_2"}, []string{"ses_1 pending"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := set(t)
			for _, kind := range c.steps {
				b.apply(kind, c.session, at(b))
			}
			b.claimed(c.claims...)
			b.wants(c.shown...)
		})
	}
	t.Run("what is old stays old", func(t *testing.T) {
		t.Parallel()
		b := set(t)
		before := b.standing()
		for _, old := range []int64{b.clock - 11_000, b.clock - hour, 1, b.clock + 2000, b.clock + hour/2} {
			for _, kind := range []EventKind{EventStarted, EventSucceeded, EventShutdown, EventDeleted} {
				for _, id := range []string{"ses_1", "ses_2", "ses_3"} {
					b.apply(kind, id, old)
				}
			}
		}
		b.clock += hour // set right again: what came before its time
		for _, id := range []string{"ses_1", "ses_2", "ses_3"} {
			b.apply(EventStarted, id, b.clock-5000)
			b.apply(EventDeleted, id, b.clock-5000)
		}
		if after := b.standing(); after != before {
			t.Errorf("changed\n%s\nto\n%s", before, after)
		}
	})
}
