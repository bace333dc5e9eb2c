package supervisor

import (
	"context"
	"time"

	"intermission/restart/faultpoint"
	"intermission/supervisor/control"
)

// submission is an input on its way to the loop, with a channel that is answered
// once it has been reduced, with what went wrong at once.
type submission struct {
	Input
	done chan error
}

// act is a launch or a halt under way.
type act struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (s *supervisor) loop(ctx context.Context) {
	_ = s.step(Input{Kind: InBoot, At: time.Now()}) // no wish to be saved
	leaving, finish := ctx.Done(), s.finish
	alive, starting := tick(s.Manager.Watchdog()), tick(startTick)
	defer alive.stop()
	defer func() { starting.stop() }()
	for {
		if starting.due != nil && s.launched() {
			starting.stop()
			starting = tick(0)
			if !s.finish {
				s.Manager.Ready()
			}
		}
		if finish && s.launched() {
			leaving, finish = nil, false
			_ = s.step(Input{Kind: InLeave, At: time.Now()}) // no wish to be saved
			continue
		}
		select {
		case <-alive.due: // told here, and nowhere else: a loop that is stuck doesn't
			s.Manager.Alive()
		case <-starting.due:
			s.Manager.Starting(startMore)
		case <-leaving:
			leaving = nil
			_ = s.step(Input{Kind: InLeave, At: time.Now()}) // no wish to be saved
		case in := <-s.inputs:
			in.done <- s.step(in.Input)
		case <-s.left:
			return
		}
	}
}

// ticker ticks at due, which is nil when it never does.
type ticker struct {
	due  <-chan time.Time
	stop func()
}

func tick(every time.Duration) ticker {
	if every <= 0 {
		return ticker{nil, func() {}}
	}
	t := time.NewTicker(every)
	return ticker{t.C, t.Stop}
}

// submit hands an input to the loop and waits until it was reduced, or until the
// supervisor ends. Its error is that of a wish that could not be made durable.
func (s *supervisor) submit(in Input) error {
	in.At = time.Now()
	sub := submission{in, make(chan error, 1)}
	select {
	case s.inputs <- sub:
		return <-sub.done
	case <-s.life.Done():
		return errEnding
	}
}

var errEnding = &control.Error{Code: control.CodeNoSupervisor, Message: "the supervisor is ending"}

// report submits what an act or a timer has to say; nobody waits for an answer.
func (s *supervisor) report(in Input) { _ = s.submit(in) }

// step reduces one input and begins its effects. Only the loop calls it.
func (s *supervisor) step(in Input) (err error) {
	s.mu.Lock()
	in.Ended = s.current != nil && s.current.over()
	in.Kept = s.keepsLock()
	before := s.state
	next, effects := Reduce(s.Policy, s.state, in)
	s.state = next
	if s.current != nil && s.current.concluded() {
		s.current = nil // together with the phase that says so
	}
	s.mu.Unlock()
	if before.Phase != next.Phase || before.Reason != next.Reason {
		s.logPhase(before, next, in.Kind)
	}
	if next.Leaving && !before.Leaving && !next.Handed {
		s.Manager.Stopping(leaveLimit + leaveRest)
	}
	for _, e := range effects {
		if e.Kind == DoSaveWish {
			if err = saveWish(s.Paths.State, next.Wish); err != nil && in.Kind == InKept { // who asked has been told already
				s.Log.Error("the wish to stop the server, which was refused, can't be taken back", "error", err)
			}
			continue
		}
		s.perform(e)
	}
	if before.Phase != next.Phase && in.Kind != InRefused && (next.Phase == Stopped || next.Phase == Failed || next.Phase == Backoff) {
		s.workers.Go(s.lookForSuccessor) // it may have come while the act was under way
	}
	s.notify()
	if before.Phase != next.Phase && next.Phase == Running {
		faultpoint.At(faultpoint.StartAnnounced)
	}
	return err
}

// logPhase logs a change of the state. Warnings and errors go to a service manager's
// journal too, which others may read: the reason, which may quote what the server
// wrote, goes to our own file only.
func (s *supervisor) logPhase(before, now State, in InputKind) {
	s.Log.Info("the server is "+string(now.Phase), "was", before.Phase, "input", in, "reason", now.Reason)
	if now.Phase == Failed || now.Phase == Blocked {
		s.Log.Error("the server is " + string(now.Phase) + "; see: intermission status")
	}
}

func (s *supervisor) perform(e Effect) {
	switch e.Kind {
	case DoLaunch:
		s.begin(e.Seq, func(ctx context.Context) Input { return s.launch(ctx, e.Seq, e.Spawn) })
	case DoHalt:
		s.begin(e.Seq, func(context.Context) Input {
			if e.Yield {
				return s.haltInactive(e.Seq)
			}
			return s.halt()
		})
	case DoArm:
		timer := time.AfterFunc(e.Delay, func() { s.report(Input{Kind: InTimer, Seq: e.Seq}) })
		context.AfterFunc(s.life, func() { timer.Stop() })
	case DoLeave:
		close(s.left)
	}
}

// begin cancels the act under way, waits for its end, and then runs the next; its input is reported.
func (s *supervisor) begin(seq uint64, do func(context.Context) Input) {
	ctx, cancel := context.WithCancel(s.life)
	before, now := s.act, &act{cancel, make(chan struct{})}
	s.act = now
	s.workers.Go(func() {
		defer cancel()
		if before != nil {
			before.cancel()
			<-before.done
		}
		in := do(ctx)
		close(now.done)
		in.Seq = seq
		s.report(in)
	})
}
