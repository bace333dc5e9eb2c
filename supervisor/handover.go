package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/control"
)

// ErrHandedOver says that Run has ended without stopping its server: the next
// supervisor takes it over, with all that works in it.
var ErrHandedOver = errors.New("handed over to the next supervisor")

// deliveryPatience is how long a handover waits for consents that are being
// delivered. One that takes longer is looked up by the next supervisor.
const deliveryPatience = 10 * time.Second

// HandOver implements control.Backend. The supervisor ends as if it had been
// killed at a good moment: nobody is suspended, the server's record stays as it is,
// and the next supervisor adopts by it. So it doesn't matter at which moment of it
// this one really is killed. Until the loop has taken the decision nothing but the
// door for consents has changed, and that opens again when it isn't taken.
func (s *supervisor) HandOver(ctx context.Context) (control.Ending, error) {
	answer := control.Ending{PID: os.Getpid(), Lock: s.Paths.InstanceLock}
	for {
		s.mu.Lock()
		changed, wait := s.changed, s.busy()
		s.mu.Unlock()
		if !wait {
			err := s.handOverNow(ctx)
			if !errors.Is(err, errBusy) {
				return answer, err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-s.life.Done():
			return answer, s.ending()
		}
	}
}

// ending is nil when the supervisor ends by a handover, which then has succeeded
// for everybody who asked for it.
func (s *supervisor) ending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Handed {
		return nil
	}
	return errEnding
}

var errBusy = errors.New("an act is under way")

// busy says that an act is under way, or about to be. s.mu is held.
func (s *supervisor) busy() bool {
	switch s.state.Phase {
	case Starting, Stopping:
		return true
	case Running:
		return s.current != nil && s.current.over()
	}
	return false
}

// handOverNow lets no further consent in, waits for those that are being delivered,
// and has the loop decide. It fails with errBusy when an act came first,
// and with a reason for people when there would be no successor.
func (s *supervisor) handOverNow(ctx context.Context) error {
	if err := s.startable(); err != nil {
		return err
	}
	if err := s.unguarded(); err != nil {
		return err
	}
	s.consents.close(beingReplaced)
	faultpoint.At(faultpoint.HandoverAccepted)
	err := s.drain(ctx)
	if err == nil {
		err = s.submit(Input{Kind: InHand})
	}
	s.mu.Lock()
	handed := s.state.Handed
	s.mu.Unlock()
	switch {
	case handed:
		return nil
	case err == nil:
		err = errBusy
	}
	s.consents.open(beingReplaced)
	return err
}

// unguarded says why nothing may be handed over: we keep the server's lock because
// what a server left, or would leave, can't be parked. It would be free for the
// moment in between, and who starts a server then has it all resumed.
func (s *supervisor) unguarded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keepsLock() {
		return nil
	}
	return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("nothing is handed over, for this supervisor keeps the server from being started while what is unfinished can't be parked: %s", s.state.Reason)}
}

// keepsLock says that a lock of ours, and neither a server that we attend nor an act
// under way, is what keeps others from being started. s.mu is held.
func (s *supervisor) keepsLock() bool {
	switch s.state.Phase {
	case Stopped, Backoff, Failed, Blocked:
		return s.held != nil || s.standing != nil
	}
	return false
}

// drain waits until no consent is being delivered, for deliveryPatience at most.
func (s *supervisor) drain(ctx context.Context) error {
	patience := time.NewTimer(deliveryPatience)
	defer patience.Stop()
	for {
		s.mu.Lock()
		changed, busy := s.changed, s.busy()
		s.mu.Unlock()
		if busy {
			return errBusy
		}
		done := s.consents.drained()
		if closed(done) && s.delivering(ctx) == 0 {
			return nil
		}
		if closed(done) {
			done = nil
		}
		select {
		case <-done:
		case <-changed:
		case <-patience.C:
			s.Log.Warn("consents are still being delivered; the next supervisor finds out what came of them")
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Done():
			return s.ending()
		}
	}
}

// delivering counts the consents that are being delivered. What can't be read holds up
// no handover that was decided on: the next supervisor finds out.
func (s *supervisor) delivering(ctx context.Context) int {
	n, _ := s.consented(ctx, restart.StateResuming)
	return n
}

// undecided says that a consent waits, or is being delivered, so that nothing is to be
// done that nobody asked for. That can't be read is no better; since nothing announces
// that it can again, again is after how long to ask.
func (s *supervisor) undecided() (yes bool, again time.Duration) {
	n, err := s.consented(s.life, restart.StateQueued, restart.StateResuming)
	if err != nil {
		return true, max(s.Policy.Quiet, askTimeout)
	}
	return n > 0, 0
}

// consented counts the suspensions in one of these states; none where there is no ledger.
func (s *supervisor) consented(ctx context.Context, states ...restart.State) (n int, err error) {
	ledger, _ := s.book()
	if ledger == nil {
		return 0, nil
	}
	list, err := ledger.Pending(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.Log.Warn("which consents are under way is not known", "error", err)
		}
		return 0, err
	}
	for _, p := range list {
		for _, state := range states {
			if p.State == state {
				n++
			}
		}
	}
	return n, nil
}

// beingReplaced is what consents are told while a handover is under way.
const beingReplaced = "the supervisor is being replaced"

// door is what consents come in by.
type door struct {
	mu     sync.Mutex
	shut   []string // why, by each who has shut it
	inside int
	empty  chan struct{} // closed when nobody is inside; nil when nobody waits for that
}

// enter lets a consent in; leave has to follow. It says why when the door is shut.
func (d *door) enter() (shut string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.shut) > 0 {
		return d.shut[0]
	}
	d.inside++
	return ""
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	if d.inside == 0 && d.empty != nil {
		close(d.empty)
		d.empty = nil
	}
}

// close shuts the door, and says why; open has to follow with the same, or the end.
func (d *door) close(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = append(d.shut, why)
}

func (d *door) open(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.shut, why); i >= 0 {
		d.shut = slices.Delete(d.shut, i, i+1)
	}
}

// drained gives a channel that is closed when nobody is inside.
func (d *door) drained() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inside == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if d.empty == nil {
		d.empty = make(chan struct{})
	}
	return d.empty
}
