package restart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"intermission/restart/faultpoint"
)

// Verdict is what came of a consent.
type Verdict string

// The verdicts.
const (
	VerdictResumed Verdict = "resumed" // it executes, or did; Reason says so when it ended at once
	VerdictQueued  Verdict = "queued"  // consented, waits for one of the places
	VerdictAlready Verdict = "already" // resumed, dismissed or settled before, or being resumed
	VerdictRefused Verdict = "refused" // not resumed; Reason says why
	VerdictUnknown Verdict = "unknown" // can't be known; needs a new consent
)

// Result is the answer to a consent.
type Result struct {
	ID      string
	Verdict Verdict
	Reason  string
}

// ResumerConfig configures a Resumer. Zero values take the defaults.
type ResumerConfig struct {
	Concurrency int                   // resumed sessions that execute at once; default 4
	Text        string                // told before the list of lost background jobs; "" for nothing more
	Settle      time.Duration         // accepted, and nothing started for so long: ended at once; default 5 s
	Patience    time.Duration         // how long a caller waits for a server that doesn't answer; default 30 s
	Exists      func(dir string) bool // whether a directory is there; default by os.Stat
	// Settled is told what came of each suspension (Unix ms) that a consent had
	// consumed, before its caller is, who may have heard VerdictQueued only. It must
	// not block. Default: nobody is told.
	Settled func(suspended int64, r Result)
}

// Resumer carries out consents, each at most once, and none again by itself.
type Resumer struct {
	ledger *Ledger
	config ResumerConfig
	wg     sync.WaitGroup

	mu      sync.Mutex
	up      *serverUp            // nil while no server is up
	places  map[string]time.Time // sessions that hold a place, by when they took it
	queue   []*delivery
	running map[string]*delivery // deliveries under way, by session
	polling bool
	closed  bool
}

// serverUp is one server, for as long as it is up.
type serverUp struct {
	Server
	db     Database
	ctx    context.Context
	cancel context.CancelFunc
}

// NewResumer makes a Resumer. No server is up until SetServer.
func NewResumer(l *Ledger, c ResumerConfig) *Resumer {
	if c.Concurrency <= 0 {
		c.Concurrency = 4
	}
	if c.Settle <= 0 {
		c.Settle = 5 * time.Second
	}
	if c.Patience <= 0 {
		c.Patience = 30 * time.Second
	}
	if c.Exists == nil {
		c.Exists = func(dir string) bool {
			info, err := os.Stat(dir)
			return err == nil && info.IsDir()
		}
	}
	if c.Settled == nil {
		c.Settled = func(int64, Result) {}
	}
	return &Resumer{ledger: l, config: c, places: map[string]time.Time{}, running: map[string]*delivery{}}
}

// SetServer says which server is up; nil, nil when none is. What was queued for
// the server before is put back; what was being delivered to it is left to Park
// and Recover, for its database decides.
func (r *Resumer) SetServer(s Server, db Database) {
	r.mu.Lock()
	if r.up != nil {
		r.up.cancel()
		r.up = nil
	}
	queued := r.queue
	r.queue = nil
	clear(r.places)
	if s != nil && !r.closed {
		ctx, cancel := context.WithCancel(context.Background())
		r.up = &serverUp{Server: s, db: db, ctx: ctx, cancel: cancel}
	}
	r.mu.Unlock()
	for _, d := range queued {
		// An error leaves it queued in the ledger: Park or Recover puts it back.
		_ = r.ledger.PutBack(context.Background(), d.ticket, serverEnded, "")
		d.settle(Result{d.ticket.Session, VerdictRefused, serverEnded})
	}
	if s != nil {
		r.takePlaces()
	}
}

// takePlaces gives their places to sessions that an earlier Resumer has resumed and that still execute.
func (r *Resumer) takePlaces() {
	list, err := r.ledger.live(context.Background(), "AND ours = 1")
	if err != nil {
		return // the ledger will say so at the next consent
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range list {
		r.places[id] = time.Now()
	}
}

// Close ends all deliveries' goroutines and waits for them.
func (r *Resumer) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.SetServer(nil, nil)
	r.wg.Wait()
}

const serverEnded = "the server or the supervisor ended before it was resumed"

// Resume consents to one suspension; at names it (Unix ms), 0 means the one that
// is pending now. It returns when the outcome is known, when the session waits
// for a place, or when the server has not answered for ResumerConfig.Patience
// (VerdictUnknown); what is begun goes on when ctx ends. ErrNotPending: the ledger
// knows no suspension of that session.
func (r *Resumer) Resume(ctx context.Context, id string, at int64) (Result, error) {
	s, pending, journal, err := r.ledger.Show(ctx, id)
	if err != nil {
		return Result{}, err
	}
	switch {
	case len(journal) == 0:
		return Result{}, ErrNotPending
	case !pending:
		return Result{id, VerdictAlready, lastWord(journal, at)}, nil
	case at != 0 && at != s.SuspendedAt:
		return Result{id, VerdictAlready, (&StaleError{Session: id}).Error()}, nil
	case s.State == StateQueued || s.State == StateResuming:
		return Result{id, VerdictAlready, "it is " + string(s.State)}, nil
	}
	r.mu.Lock()
	up := r.up
	r.mu.Unlock()
	if up == nil {
		return Result{id, VerdictRefused, "the server is down; start it first: intermission start"}, nil
	}
	if result, err := r.check(ctx, up, s); err != nil || result.Verdict != "" {
		return result, err
	}
	faultpoint.At(faultpoint.ConsentChecked)
	return r.consume(ctx, up, s)
}

// unlessFaster is the result of a check, unless somebody else's consent to the same
// suspension came while it was made: then it was that one's execution which was seen.
func (r *Resumer) unlessFaster(ctx context.Context, s Suspension, result Result) Result {
	if result.Verdict != VerdictRefused {
		return result
	}
	now, pending, _, err := r.ledger.Show(ctx, s.ID)
	if err == nil && (!pending || now.SuspendedAt != s.SuspendedAt || now.State == StateQueued || now.State == StateResuming) {
		return Result{s.ID, VerdictAlready, "somebody else was faster"}
	}
	return result
}

// lastWord tells what became of the suspension at, or of the newest.
func lastWord(journal []JournalEntry, at int64) string {
	for _, e := range slices.Backward(journal) {
		if at != 0 && e.SuspendedAt != at {
			continue
		}
		switch e.What {
		case whatDelivered:
			return "it was resumed"
		case whatDismissed:
			return "it was dismissed"
		case whatSettled:
			return e.Detail
		}
	}
	return "that suspension was replaced by a newer one"
}

// consume counts the consent and delivers, now or when there is a place.
func (r *Resumer) consume(ctx context.Context, up *serverUp, s Suspension) (Result, error) {
	ticket, err := r.ledger.Consume(ctx, s.ID, s.SuspendedAt)
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return Result{s.ID, VerdictRefused, refused.Reason}, nil
	case errors.Is(err, ErrNotPending):
		return Result{s.ID, VerdictAlready, "somebody else was faster"}, nil
	case err != nil:
		return Result{}, err
	}
	faultpoint.At(faultpoint.ConsentConsumed)
	if ticket.Text != "" && r.config.Text != "" {
		ticket.Text = r.config.Text + "\n\n" + ticket.Text
	}
	d := newDelivery(r, up, ticket)
	queued, ok := r.enter(d)
	switch {
	case !ok:
		err := r.ledger.PutBack(context.WithoutCancel(ctx), ticket, serverEnded, "")
		d.settle(Result{s.ID, VerdictRefused, serverEnded})
		return <-d.result, err
	case queued:
		return Result{s.ID, VerdictQueued, fmt.Sprintf("%d resumed sessions execute already", r.config.Concurrency)}, nil
	}
	patience := time.NewTimer(r.config.Patience)
	defer patience.Stop()
	select {
	case result := <-d.result:
		return result, nil
	case <-patience.C: // its answer decides, or its end by Park, or Recover; nothing is sent again
		return Result{s.ID, VerdictUnknown, "the server doesn't answer; see: intermission show " + s.ID}, nil
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// enter gives d a place, or puts it into the queue. It is not ok when its server is gone.
func (r *Resumer) enter(d *delivery) (queued, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up != d.up {
		return false, false
	}
	if len(r.places) < r.config.Concurrency {
		r.start(d)
		return false, true
	}
	d.waited = true
	r.queue = append(r.queue, d)
	if !r.polling {
		r.polling = true
		r.wg.Go(func() { r.poll(d.up) })
	}
	return true, true
}

// start runs d. r.mu is held.
func (r *Resumer) start(d *delivery) {
	r.places[d.ticket.Session] = time.Now()
	r.running[d.ticket.Session] = d
	r.wg.Go(d.run)
}

// leave gives the session's place to the next in the queue.
func (r *Resumer) leave(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.places, session)
	for len(r.queue) > 0 && len(r.places) < r.config.Concurrency {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.start(next)
	}
}

// poll frees places whose end was missed, while anyone waits for one.
func (r *Resumer) poll(up *serverUp) {
	tick := time.NewTicker(r.config.Settle)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-up.ctx.Done():
		}
		r.mu.Lock()
		if len(r.queue) == 0 || up.ctx.Err() != nil {
			r.polling = false
			r.mu.Unlock()
			return
		}
		var held []string
		for id, since := range r.places {
			if time.Since(since) > r.config.Settle && r.running[id] == nil {
				held = append(held, id)
			}
		}
		r.mu.Unlock()
		active, err := up.Active(up.ctx)
		if err != nil {
			continue // asked again at the next tick
		}
		for _, id := range held {
			if !slices.Contains(active, id) {
				r.leave(id)
			}
		}
	}
}

// Observe tells of an event, after Ledger.Apply. It doesn't block.
func (r *Resumer) Observe(e Event) {
	r.mu.Lock()
	d := r.running[e.Session]
	_, holds := r.places[e.Session]
	r.mu.Unlock()
	if d != nil {
		d.observe(e.Kind)
	}
	if holds && d == nil && e.Kind.ends() {
		r.leave(e.Session)
	}
}

// ends says that after the event the session doesn't execute.
func (k EventKind) ends() bool { return k != EventStarted && k != EventProgress }

// Pending is Ledger.Pending; what can't be resumed now is shown as blocked, with the reason.
func (r *Resumer) Pending(ctx context.Context) ([]Suspension, error) {
	list, err := r.ledger.Pending(ctx)
	r.mu.Lock()
	down := r.up == nil
	r.mu.Unlock()
	for i := range list {
		s := &list[i]
		switch {
		case s.State != StatePending:
		case s.Directory != "" && !r.config.Exists(s.Directory):
			s.State, s.Reason = StateBlocked, "its directory is gone: "+PlainText(s.Directory, 200)
		case down:
			s.State, s.Reason = StateBlocked, "the server is down"
		}
	}
	return list, err
}
