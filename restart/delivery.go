package restart

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"intermission/restart/faultpoint"
)

// finding is what stands against a consent; the zero value is nothing.
type finding struct {
	verdict Verdict
	reason  string
	settle  bool // the suspension has come to its end without us
}

const elsewhere = "it runs in another OpenCode server"

// examine finds out whether a suspended session may be continued by the server that is up.
func (r *Resumer) examine(ctx context.Context, up *serverUp, session, directory, mark string) finding {
	ctx, cancel := context.WithTimeout(ctx, r.config.Patience)
	defer cancel()
	if directory != "" && !r.config.Exists(directory) {
		return finding{VerdictRefused, "its directory is gone: " + PlainText(directory, 200), false}
	}
	active, err := up.Active(ctx)
	if err != nil {
		return finding{VerdictRefused, fmt.Sprintf("the server can't say what it executes: %v", err), false}
	}
	if slices.Contains(active, session) {
		return finding{VerdictAlready, "it runs already", true}
	}
	fates, err := up.db.Fates(ctx, []string{session})
	if err != nil {
		return finding{VerdictRefused, fmt.Sprintf("the server's database can't be read: %v", err), false}
	}
	fate := fates[session]
	why := fate.against(mark)
	switch {
	case why == "":
		return finding{}
	case fate.obstacle(mark) == obstacleElsewhere:
		return finding{VerdictRefused, elsewhere, false}
	case fate.Outcome == OutcomeGone || fate.Outcome == OutcomeArchived:
		return finding{VerdictRefused, why, true}
	}
	return finding{VerdictAlready, why, true}
}

// check finds out whether the suspension may be consented to: a Result with a
// verdict says no. What went on without us is settled on the way.
func (r *Resumer) check(ctx context.Context, up *serverUp, s Suspension) (Result, error) {
	if s.State == StateBlocked && s.Reason == stopping {
		return Result{s.ID, VerdictRefused, s.Reason}, nil
	}
	if other, err := r.otherDatabase(ctx, s.ID); err != nil || other != "" {
		return Result{s.ID, VerdictRefused, "it is in another database than the server's: " + other}, err
	}
	row, err := r.ledger.list(ctx, "WHERE id = ?", s.ID)
	if err != nil || len(row) == 0 {
		return Result{}, err
	}
	f := r.examine(ctx, up, s.ID, s.Directory, row[0].Mark)
	if f.verdict == "" && row[0].Obstacle == obstacleElsewhere {
		fates, err := up.db.Fates(ctx, []string{s.ID})
		if err != nil {
			return Result{}, err
		}
		switch outcome := fates[s.ID].Outcome; {
		case outcome == OutcomeInFlight && runsElsewhere(up.db, row[0].Claimed):
			f = finding{VerdictRefused, elsewhere, false}
		case outcome == OutcomeEnded:
			f = finding{VerdictAlready, endedElsewhere, true}
		}
	}
	if f.settle {
		return r.settled(ctx, s, f.verdict, f.reason)
	}
	return r.unlessFaster(ctx, s, Result{s.ID, f.verdict, f.reason}), nil
}

// otherDatabase names the database of a session that isn't in the running server's; "" when it is.
func (r *Resumer) otherDatabase(ctx context.Context, id string) (string, error) {
	inc, err := r.ledger.current(ctx)
	if err != nil || inc == nil {
		return "", err
	}
	row, err := r.ledger.list(ctx, "WHERE id = ? AND database NOT IN ('', ?)", id, inc.Database)
	if err != nil || len(row) == 0 {
		return "", err
	}
	return row[0].Database, nil
}

// settled settles the suspension that was looked at, unless it has been decided since.
func (r *Resumer) settled(ctx context.Context, s Suspension, v Verdict, why string) (Result, error) {
	err := r.ledger.Settle(ctx, s.ID, s.SuspendedAt, why)
	if errors.Is(err, ErrNotPending) {
		return Result{s.ID, VerdictAlready, "somebody else was faster"}, nil
	}
	return Result{s.ID, v, why}, err
}

// delivery carries out one consent.
type delivery struct {
	resumer *Resumer
	up      *serverUp
	ticket  Ticket
	waited  bool // for a place: much may have happened since the consent
	events  chan EventKind
	result  chan Result // gets exactly one
}

func newDelivery(r *Resumer, up *serverUp, ticket Ticket) *delivery {
	return &delivery{resumer: r, up: up, ticket: ticket, events: make(chan EventKind, 16), result: make(chan Result, 1)}
}

// observe passes an event on. Of a flood of progress the first lines are enough, so that none waits here.
func (d *delivery) observe(k EventKind) {
	select {
	case d.events <- k:
	default:
	}
}

// run delivers. What the ledger can't be told here (it may fail, or have been
// decided otherwise meanwhile) Recover finds as resuming, and decides.
func (d *delivery) run() {
	result, executes := d.attempt()
	d.settle(result)
	r := d.resumer
	r.mu.Lock()
	delete(r.running, d.ticket.Session)
	r.mu.Unlock()
	if !executes || d.endedMeanwhile() {
		r.leave(d.ticket.Session)
	}
	d.conclude()
}

// conclude decides what could not be written down when it was known, for the ledger's
// disk was full, say: else it would be seen as under way until we end. It is tried until
// it is decided, or the server ends: then Park decides.
func (d *delivery) conclude() {
	ctx, l := d.up.ctx, d.resumer.ledger
	for {
		err := l.step(ctx, d.ticket, func(t *tx, s *session) error {
			return t.putBack(s, "it was not sent, for that could not be written down")
		}, phaseQueued)
		if errors.Is(err, ErrNotPending) {
			err = l.recover(ctx, d.ticket, d.up.Lookup, d.up.db)
		}
		if err == nil || errors.Is(err, ErrNotPending) {
			return
		}
		select {
		case <-time.After(d.resumer.config.Settle):
		case <-ctx.Done():
			return
		}
	}
}

// settle tells what came of it.
func (d *delivery) settle(result Result) {
	d.resumer.config.Settled(d.ticket.Suspended, result)
	d.result <- result
}

// endedMeanwhile looks at events that came after the outcome was known.
func (d *delivery) endedMeanwhile() bool {
	for {
		select {
		case k := <-d.events:
			if k.ends() {
				return true
			}
		default:
			return false
		}
	}
}

// attempt delivers once. executes says that the session keeps its place.
func (d *delivery) attempt() (result Result, executes bool) {
	ctx, l := d.up.ctx, d.resumer.ledger
	if d.waited {
		if f := d.resumer.examine(ctx, d.up, d.ticket.Session, d.ticket.Directory, d.ticket.Mark); f.verdict != "" {
			return d.withdraw(f)
		}
	}
	if err := l.Delivering(ctx, d.ticket); err != nil {
		return d.answer(VerdictRefused, "it was not sent: %v", err), false
	}
	faultpoint.At(faultpoint.ConsentIntent)
	sent := make(chan error, 1)
	// Deliver may return only when the execution has settled: this goroutine outlives the attempt.
	d.resumer.wg.Go(func() {
		faultpoint.At(faultpoint.ConsentSent)
		err := d.up.Deliver(ctx, d.ticket.Delivery)
		faultpoint.At(faultpoint.ConsentAnswered)
		sent <- err
	})
	look := time.NewTicker(d.resumer.config.Settle)
	defer look.Stop()
	for {
		select {
		case k := <-d.events:
			if k == EventStarted {
				return d.started()
			}
		case err := <-sent:
			if err == nil {
				return d.accepted()
			}
			return d.failed(err)
		case <-look.C: // the event may have been missed
			if active, err := d.up.Active(ctx); err == nil && slices.Contains(active, d.ticket.Session) {
				return d.started()
			}
		case <-ctx.Done():
			return d.decided()
		}
	}
}

// withdraw takes back a consent that waited for a place, for what was found meanwhile.
func (d *delivery) withdraw(f finding) (Result, bool) {
	ctx, l := context.WithoutCancel(d.up.ctx), d.resumer.ledger
	if f.settle {
		err := l.step(ctx, d.ticket, func(t *tx, s *session) error { return t.settle(s, f.reason) }, phaseQueued)
		return d.undelivered(err, f.verdict, f.reason)
	}
	if d.up.ctx.Err() != nil {
		f.reason = serverEnded
	}
	return d.undelivered(l.PutBack(ctx, d.ticket, f.reason, ""), VerdictRefused, f.reason)
}

// decided answers by what the ledger says, for somebody else has decided: an
// event, or Park when the server has ended.
func (d *delivery) decided() (Result, bool) {
	_, _, journal, err := d.resumer.ledger.Show(context.WithoutCancel(d.up.ctx), d.ticket.Session)
	if err != nil {
		return d.answer(VerdictUnknown, "%v", err), false
	}
	for _, e := range slices.Backward(journal) {
		if e.SuspendedAt != d.ticket.Suspended {
			continue
		}
		switch e.What {
		case whatDelivered:
			return d.answer(VerdictResumed, ""), d.up.ctx.Err() == nil
		case whatRefused:
			return d.answer(VerdictRefused, "%s", e.Detail), false
		case whatSettled:
			return d.answer(VerdictAlready, "%s", e.Detail), false
		}
		break
	}
	return d.answer(VerdictUnknown, "the server ended while it was being resumed"), false
}

func (d *delivery) answer(v Verdict, format string, args ...any) Result {
	return Result{d.ticket.Session, v, fmt.Sprintf(format, args...)}
}

// delivered records it; that an event has done so before is no error.
func (d *delivery) delivered(how string) error {
	err := d.resumer.ledger.Delivered(context.WithoutCancel(d.up.ctx), d.ticket, how)
	if !errors.Is(err, ErrNotPending) {
		return err
	}
	if result, _ := d.decided(); result.Verdict != VerdictResumed {
		return errors.New(result.Reason)
	}
	return nil
}

// EndedAtOnce is the reason of a Result of VerdictResumed whose execution did nothing.
const EndedAtOnce = "ended at once"

// started waits a moment: an execution that ends without having done anything is not "running".
func (d *delivery) started() (Result, bool) {
	if err := d.delivered("its execution started"); err != nil {
		return d.answer(VerdictUnknown, "%v", err), true
	}
	moment := time.NewTimer(d.resumer.config.Settle / 5)
	defer moment.Stop()
	for {
		select {
		case k := <-d.events:
			if k == EventProgress {
				return d.answer(VerdictResumed, ""), true
			}
			if k.ends() {
				return d.answer(VerdictResumed, EndedAtOnce), false
			}
		case <-moment.C:
			return d.answer(VerdictResumed, ""), true
		case <-d.up.ctx.Done():
			return d.answer(VerdictResumed, "and the server ended"), false
		}
	}
}

// accepted waits for the execution that the server has promised.
func (d *delivery) accepted() (Result, bool) {
	if err := d.delivered("the server accepted it"); err != nil {
		return d.answer(VerdictUnknown, "%v", err), true
	}
	bound := time.NewTimer(d.resumer.config.Settle)
	defer bound.Stop()
	for {
		select {
		case k := <-d.events:
			switch {
			case k == EventStarted:
				return d.started()
			case k == EventProgress:
				return d.answer(VerdictResumed, ""), true
			}
			return d.answer(VerdictResumed, EndedAtOnce), false
		case <-bound.C:
			return d.idle()
		case <-d.up.ctx.Done():
			return d.answer(VerdictResumed, "and the server ended"), false
		}
	}
}

// idle decides what it means that nothing was heard of an accepted delivery.
func (d *delivery) idle() (Result, bool) {
	active, err := d.up.Active(d.up.ctx)
	if err != nil || slices.Contains(active, d.ticket.Session) {
		return d.answer(VerdictResumed, ""), true
	}
	if err := d.resumer.ledger.Idle(d.up.ctx, d.ticket); err != nil && !errors.Is(err, ErrNotPending) {
		return d.answer(VerdictUnknown, "%v", err), false
	}
	return d.answer(VerdictResumed, EndedAtOnce), false
}

// failed decides about an error of Deliver.
func (d *delivery) failed(cause error) (Result, bool) {
	ctx, l := d.up.ctx, d.resumer.ledger
	var refused *RefusedError
	if errors.As(cause, &refused) {
		return d.refused(ctx, refused), false
	}
	arrival, err := d.lookup(ctx)
	switch {
	case ctx.Err() != nil:
		return d.decided()
	case err != nil:
		arrival = ArrivalUnknown
	}
	reason := PlainText(cause.Error(), 300)
	if arrival == ArrivalUnknown && d.untouched(ctx, cause) {
		arrival = NotArrived
	}
	switch arrival {
	case Arrived:
		return d.accepted()
	case NotArrived:
		err = l.PutBack(ctx, d.ticket, reason, d.mark(ctx))
		return d.undelivered(err, VerdictRefused, reason)
	}
	err = l.Unknown(ctx, d.ticket, reason, d.mark(ctx))
	return d.undelivered(err, VerdictUnknown, reason)
}

// untouched says that the server answered with a failure, has the session not at
// work, and its database shows no execution since it was suspended.
func (d *delivery) untouched(ctx context.Context, cause error) bool {
	var answered *AnsweredError
	if !errors.As(cause, &answered) || d.ticket.Mark == "" || d.mark(ctx) != d.ticket.Mark {
		return false
	}
	active, err := d.up.Active(ctx)
	return err == nil && !slices.Contains(active, d.ticket.Session)
}

// lookup asks whether it arrived, and once more when the server can't be asked:
// most often it is about to be known that it has ended, and then Park decides.
func (d *delivery) lookup(ctx context.Context) (Arrival, error) {
	arrival, err := d.up.Lookup(ctx, d.ticket.Delivery)
	if err == nil {
		return arrival, nil
	}
	again := time.NewTimer(d.resumer.config.Settle)
	defer again.Stop()
	select {
	case <-again.C:
		return d.up.Lookup(ctx, d.ticket.Delivery)
	case <-ctx.Done():
		return ArrivalUnknown, ctx.Err()
	}
}

// undelivered answers, unless somebody else has decided meanwhile.
func (d *delivery) undelivered(err error, v Verdict, reason string) (Result, bool) {
	switch {
	case errors.Is(err, ErrNotPending):
		return d.decided()
	case err != nil:
		return d.answer(VerdictUnknown, "%v", err), false
	}
	return d.answer(v, "%s", reason), false
}

// refused puts the suspension back, or settles it when its session is gone.
func (d *delivery) refused(ctx context.Context, cause *RefusedError) Result {
	l, ctx := d.resumer.ledger, context.WithoutCancel(ctx)
	reason := PlainText(cause.Reason, 300)
	err := l.PutBack(ctx, d.ticket, reason, d.mark(ctx))
	if err == nil && cause.Gone {
		err = l.Settle(ctx, d.ticket.Session, d.ticket.Suspended, "the session was deleted")
	}
	if err != nil && !errors.Is(err, ErrNotPending) {
		return d.answer(VerdictUnknown, "%v", err)
	}
	return d.answer(VerdictRefused, "%s", reason)
}

// mark asks for the session's mark: an attempt that failed may have left a trace,
// which must not be taken for somebody's going on. "" when it isn't known.
func (d *delivery) mark(ctx context.Context) string {
	fates, err := d.up.db.Fates(ctx, []string{d.ticket.Session})
	if err != nil {
		return ""
	}
	return fates[d.ticket.Session].Mark
}
