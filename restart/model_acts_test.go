package restart

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"pgregory.net/rapid"
)

// acts are what may happen, by name.
func (r *modelRun) acts() map[string]func(*rapid.T) {
	acts := map[string]func(*rapid.T){
		"start": r.actStart, "end": r.actEnd, "progress": r.actProgress, "vanish": r.actVanish, "old events": r.actOld,
		"announce": r.actAnnounce, "abandon": r.actAbandon, "stop": r.actStop, "die": r.actDie, "miss": r.actMiss,
		"foreign": r.actForeign, "reconcile": func(*rapid.T) { r.reconcile() }, "crash": r.actCrash, "clock": r.actClock,
		"consent": r.actConsent, "twice": r.actTwice, "cut consent": r.actCutConsent, "dismiss": r.actDismiss,
	}
	for name, act := range acts {
		acts[name] = func(t *rapid.T) {
			r.T = t
			r.clock += 10
			r.active()
			act(t)
		}
	}
	return acts
}

// draw picks a session that fits.
func (r *modelRun) draw(fits func(*modelSession) bool) (string, *modelSession) {
	var list []string
	for _, id := range modelNames {
		if fits(r.all[id]) {
			list = append(list, id)
		}
	}
	if len(list) == 0 {
		r.Skip("none fits")
	}
	id := rapid.SampledFrom(list).Draw(r.T, "session")
	return id, r.all[id]
}

func (r *modelRun) whenOpen(open bool) {
	if r.open != open {
		r.Skip("not now")
	}
}

func idle(m *modelSession) bool { return !m.busy && !m.foreign }
func busy(m *modelSession) bool { return m.busy }

func (r *modelRun) heardStart(id string) {
	m := r.all[id]
	m.begins(r.clock, r.rows, false)
	m.claim(r.event(EventStarted, id))
	r.parented(id)
}

func (r *modelRun) actStart(*rapid.T) {
	r.whenOpen(true)
	id, _ := r.draw(idle)
	r.heardStart(id)
}

func (r *modelRun) actEnd(t *rapid.T) {
	r.whenOpen(true)
	id, m := r.draw(busy)
	kind := rapid.SampledFrom([]EventKind{EventSucceeded, EventFailed, EventInterrupted}).Draw(t, "kind")
	m.ends(OutcomeEnded)
	r.event(kind, id)
	if m.announced {
		m.settle()
	}
	m.claimed = false
}

func (r *modelRun) actProgress(*rapid.T) {
	r.whenOpen(true)
	id, _ := r.draw(busy)
	r.progress(id)
}

func (r *modelRun) progress(id string) {
	e := Event{Kind: EventProgress, Session: id, At: r.clock}
	r.must(r.ledger.Apply(r.Context(), e))
	r.resumer.Observe(e)
}

// actVanish has a session deleted or archived. The same id may come again, as one of another world.
func (r *modelRun) actVanish(t *rapid.T) {
	r.whenOpen(true)
	id, m := r.draw(func(m *modelSession) bool { return !m.foreign })
	m.ends(OutcomeEnded)
	r.event(rapid.SampledFrom([]EventKind{EventDeleted, EventArchived}).Draw(t, "kind"), id)
	m.settle()
	m.claimed = false
}

// actOld has events come again, in any order.
func (r *modelRun) actOld(t *rapid.T) {
	var old []Event
	for _, e := range r.sent {
		// What comes twice within moments while the clock is behind, setBack doesn't cover.
		if e.At < r.clock-eventDelay.Milliseconds() || e.At > r.clock+2000 || !r.behind(e.Session) {
			old = append(old, e)
		}
	}
	if len(old) == 0 {
		t.Skip("none was sent")
	}
	for _, e := range rapid.SliceOfN(rapid.SampledFrom(old), 1, 6).Draw(t, "old") {
		r.must(r.ledger.Apply(r.Context(), e))
		r.resumer.Observe(e)
	}
}

func (r *modelRun) behind(id string) bool {
	return r.clock < max(r.begun, r.all[id].seen, r.all[id].last)
}

// actAnnounce is what a supervisor writes at the beginning of a stop.
func (r *modelRun) actAnnounce(*rapid.T) {
	r.whenOpen(true)
	r.must(r.ledger.Suspend(r.Context(), r.active(), r.clock))
	for _, m := range r.all {
		if m.busy && !m.announced {
			if !m.claimed {
				m.claim(min(r.clock, max(m.seen+1, r.begun)))
			}
			m.suspend(CauseShutdown, r.clock)
			m.announced = true
		}
	}
	r.stopping = true
}

// actAbandon gives the stop up.
func (r *modelRun) actAbandon(*rapid.T) {
	if !r.open || !r.stopping {
		r.Skip("no stop")
	}
	r.must(r.ledger.Unsuspend(r.Context()))
	for _, m := range r.all {
		if m.announced {
			m.settle()
			m.claimed = true
		}
	}
	r.stopping = false
	r.resync()
}

// actStop is a graceful end: the server tells of what it interrupts, or not any more.
func (r *modelRun) actStop(t *rapid.T) {
	r.whenOpen(true)
	for _, id := range modelNames {
		m := r.all[id]
		switch {
		case !m.busy:
			continue
		case (m.claimed || m.announced) && rapid.Bool().Draw(t, "heard"):
			at := r.event(EventShutdown, id)
			if m.claimed {
				m.suspend(CauseShutdown, at)
				m.announced = true
			}
			fallthrough
		default: // the claim stays in the database
			m.busy, m.outcome = false, OutcomeSuspended
		}
	}
	r.park(CauseShutdown, r.cut())
	r.next()
}

func (r *modelRun) cut() string {
	return rapid.SampledFrom([]string{"", "", "", "taken in", "cleared", "not cleared"}).Draw(r.T, "cut")
}

func (r *modelRun) actDie(*rapid.T) {
	r.whenOpen(true)
	r.park(CauseCrash, r.cut())
	r.next()
}

// next starts a server again, after a time in which another one may have run.
func (r *modelRun) next() {
	if rapid.Bool().Draw(r.T, "another between") {
		r.clock += 10
		for _, id := range modelNames {
			if m := r.all[id]; rapid.Bool().Draw(r.T, "executes") {
				m.begins(r.clock, r.rows, true)
				if rapid.Bool().Draw(r.T, "ends") {
					m.ends(OutcomeEnded)
				}
			}
		}
		r.park(CauseCrash, r.cut())
	}
	r.begin()
}

// actMiss has things happen that nobody hears of, until the server is asked, or has died.
func (r *modelRun) actMiss(t *rapid.T) {
	r.whenOpen(true)
	for range rapid.IntRange(1, 4).Draw(t, "n") {
		// Of a claim that is later than the clock a resync can't tell that it is old: only its end, or a park.
		_, m := r.draw(func(m *modelSession) bool { return !m.foreign && !m.announced && !(m.busy && r.clock <= m.claimedAt) })
		switch {
		case m.busy:
			m.ends(OutcomeEnded)
		default:
			m.begins(r.clock, r.rows, false)
		}
		r.clock += 10
	}
	if r.rows && rapid.Bool().Draw(t, "dies") {
		r.park(CauseCrash, r.cut())
		r.next()
		return
	}
	if rapid.Bool().Draw(t, "by a successor") {
		r.down()
		r.up()
		return
	}
	r.resync()
}

// actForeign has another server execute a session, or end that.
func (r *modelRun) actForeign(*rapid.T) {
	r.whenOpen(true)
	_, m := r.draw(func(m *modelSession) bool { return !m.busy && !m.claimed })
	if m.foreign {
		m.ends(OutcomeEnded)
	} else {
		m.begins(r.clock, r.rows, true)
	}
	r.refresh()
}

func (r *modelRun) actCrash(*rapid.T) {
	r.down()
	r.up()
}

func (r *modelRun) actClock(t *rapid.T) {
	r.clock += hour * rapid.Int64Range(-5, 5).Draw(t, "hours")
}

// times gives the right time of what waits, 0 where any is meant, or a stale one.
func (r *modelRun) time(m *modelSession) int64 {
	return rapid.SampledFrom([]int64{m.at, m.at, 0, m.at - 1, m.at + 1, m.last - 7}).Draw(r.T, "time")
}

// actConsent consents once.
func (r *modelRun) actConsent(t *rapid.T) {
	r.whenOpen(true)
	id, m := r.draw(func(*modelSession) bool { return true })
	at := r.time(m)
	r.refresh()
	how := rapid.SampledFrom([]string{"executes", "accepted", "refused", "arrived", "not arrived", "unknown", "unknown, arrived"}).Draw(t, "how")
	r.server.deliver = func(context.Context, Delivery) error { return r.delivered(id, how) }
	r.server.lookup = func(Delivery) (Arrival, error) {
		switch {
		case how == "arrived":
			return Arrived, nil
		case how == "not arrived":
			return NotArrived, nil
		}
		return ArrivalUnknown, nil
	}
	effect := r.consents(id, at)
	before := len(r.server.delivered())
	result, err := r.resumer.Resume(r.Context(), id, at)
	if err != nil && !errors.Is(err, ErrNotPending) {
		t.Fatal(err)
	}
	if n := len(r.server.delivered()) - before; n > 0 != (effect == "consent") {
		t.Fatalf("%d deliveries by a consent to %s at %d that is %q: %+v", n, id, at, effect, result)
	}
	if effect == "settle" {
		m.settle()
	}
	if effect == "consent" {
		r.outcome(id, how)
	}
}

// consents tells what a consent must do: "consent", "settle" or nothing.
func (r *modelRun) consents(id string, at int64) string {
	m := r.all[id]
	moved := m.marked >= 0 && m.mark != m.marked
	switch {
	case m.at == 0 || at != 0 && at != m.at || m.announced:
		return ""
	case m.busy:
		return "settle"
	case moved && m.fate(r.rows).Outcome == OutcomeInFlight:
		return ""
	case moved:
		return "settle"
	case !r.decidable(id, m.at):
		return ""
	}
	return "consent"
}

// delivered is the server's side of a delivery.
func (r *modelRun) delivered(id, how string) error {
	if how == "executes" || how == "accepted" || strings.HasSuffix(how, "arrived") && how != "not arrived" {
		r.all[id].begins(r.clock, r.rows, false)
		r.all[id].deliveries++
		r.refresh()
		r.active()
	}
	switch how {
	case "executes":
		r.event(EventStarted, id)
		r.progress(id)
		return nil
	case "accepted":
		return nil
	case "refused":
		return &RefusedError{Reason: "no"}
	}
	return errors.New("connection reset")
}

// outcome is the model's side of it.
func (r *modelRun) outcome(id, how string) {
	m, under := r.all[id], r.under(id)
	m.consents++
	switch how {
	case "executes", "accepted", "arrived":
		for _, c := range under {
			c.settle()
		}
		m.claimed, m.claimedAt = true, m.last+1
		if how == "executes" {
			m.claimedAt = m.seen
		}
	case "unknown", "unknown, arrived":
		m.at = max(r.clock, m.last+1)
		m.last, m.unknown, m.elsewhere, m.marked = m.at, true, false, m.mark
	default: // put back as it was, but for what the consent has taken
		m.unknown, m.elsewhere, m.marked = false, false, m.mark
	}
}

// actTwice is two people, or one with two fingers.
func (r *modelRun) actTwice(*rapid.T) {
	r.whenOpen(true)
	id, m := r.draw(func(m *modelSession) bool { return m.at != 0 })
	at := m.at
	if r.consents(id, at) != "consent" {
		r.Skip("not now")
	}
	var mu sync.Mutex
	r.server.deliver = func(context.Context, Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		return r.delivered(id, "executes")
	}
	before := len(r.server.delivered())
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _, _ = r.resumer.Resume(r.Context(), id, at) })
	}
	wg.Wait()
	if n := len(r.server.delivered()) - before; n != 1 {
		r.Fatalf("%d deliveries by three consents to one suspension", n)
	}
	r.outcome(id, "executes")
}

// actCutConsent has the supervisor die while a consent is carried out, and the server with it or not.
func (r *modelRun) actCutConsent(t *rapid.T) {
	r.whenOpen(true)
	id, m := r.draw(func(m *modelSession) bool { return m.at != 0 })
	if r.consents(id, m.at) != "consent" {
		r.Skip("not now")
	}
	r.refresh()
	ticket, err := r.ledger.Consume(r.Context(), id, m.at)
	r.must(err)
	step := rapid.SampledFrom([]string{"queued", "intent", "sent"}).Draw(t, "step")
	if step != "queued" {
		r.must(r.ledger.Delivering(r.Context(), ticket))
	}
	if step == "sent" {
		m.begins(r.clock, r.rows, false)
		m.deliveries++
	}
	dies := rapid.Bool().Draw(t, "dies")
	asked := rapid.SampledFrom([]string{"told", "unknown"}).Draw(t, "lookup")
	r.open = false // no attendance by up
	r.down()
	r.up()
	r.open = true
	switch {
	case dies && step == "sent": // the database shows it
		r.outcome(id, "arrived")
	case dies:
		r.outcome(id, "not arrived")
	case step == "sent":
		arrival := Arrived
		if asked == "unknown" {
			arrival = ArrivalUnknown
		}
		r.outcome(id, "arrived") // also the database shows it
		r.attend(arrival, nil)
	case step == "intent" && asked == "unknown":
		r.outcome(id, "unknown")
		r.attend(ArrivalUnknown, nil)
	default:
		r.outcome(id, "not arrived")
		r.attend(NotArrived, nil)
	}
	if dies {
		r.park(CauseCrash, r.cut())
		r.next()
	}
}

func (r *modelRun) actDismiss(t *rapid.T) {
	id, m := r.draw(func(*modelSession) bool { return true })
	at := r.time(m)
	counts := m.at != 0 && (at == 0 || at == m.at) && r.decidable(id, m.at)
	under := r.under(id)
	n, err := r.ledger.Dismiss(r.Context(), id, at)
	if counts != (err == nil) || counts && n != len(under) {
		t.Fatalf("dismissed %d of %s at %d: %v, want %v %d", n, id, at, err, counts, len(under))
	}
	if counts {
		for _, d := range slices.Clone(under) {
			d.settle()
		}
	}
}
