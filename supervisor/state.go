package supervisor

import (
	"fmt"
	"time"
)

// Phase is what the managed server is doing, as `status` shows it.
type Phase string

// The phases. The edges between them stand in the package comment.
const (
	Stopped  Phase = "stopped"
	Starting Phase = "starting"
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Backoff  Phase = "backoff" // died, the next start is timed
	Failed   Phase = "failed"  // gave up; waits for the user
	Blocked  Phase = "blocked" // not started because the promise can't be assured; tried again by itself
)

// Wish is what the user wants of the server. It is durable, over reboots too.
type Wish string

// The wishes.
const (
	WishRunning Wish = "running"
	WishStopped Wish = "stopped"
)

// Policy bounds the restarts.
type Policy struct {
	Window    time.Duration // deaths older than this are forgotten
	MaxDeaths int           // so many deaths in Window, and we give up
	MaxDelay  time.Duration // the longest back-off

	// Quiet is how long nothing has been active before the server is restarted for an
	// upgrade, so that a person between two prompts isn't cut.
	Quiet  time.Duration
	Settle time.Duration // how long a program's file must stay as it is before it counts as replaced
}

// DefaultPolicy gives up after five deaths in five minutes.
var DefaultPolicy = Policy{
	Window: 5 * time.Minute, MaxDeaths: 5, MaxDelay: 30 * time.Second,
	Quiet: 30 * time.Second, Settle: 500 * time.Millisecond,
}

// Delay is the time between the n-th death in the window (n >= 1) and the next
// start: none after the first, then doubling from one second up to MaxDelay.
func (p Policy) Delay(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	d := time.Second << min(n-2, 20)
	return min(d, p.MaxDelay)
}

// State is all that decides what happens next. It is a value; Reduce makes the next one.
type State struct {
	Phase    Phase
	Wish     Wish
	Former   Wish        // Stopping: the wish that the stop has replaced, given back if it is refused; "" none
	Seq      uint64      // number of the current act; what an older act reports is stale
	Deaths   []time.Time // unexpected ends in the window, oldest first
	Blocks   int         // fruitless attempts in a row, for the pace of further ones
	Restarts int         // starts that followed an unexpected end
	Spawn    bool        // Starting: the act under way starts a server, unless one lives
	Again    bool        // start once the act under way has ended
	Leaving  bool        // the supervisor ends once the server has
	Unparked bool        // Leaving: what the server left could not be parked
	Handed   bool        // Leaving: it ends without its server, which it leaves to the next one
	Yields   bool        // Stopping: given up as soon as something is active in the server
	Adopted  bool        // Running: the server was there before us
	Reason   string      // why it isn't running, or is although it should have been stopped, for people
	Next     time.Time   // Backoff, Blocked: the next attempt
}

// Input is something that happened. At is when, by the clock that was passed in.
type Input struct {
	Kind   InputKind
	At     time.Time
	Seq    uint64 // the act that reports; compared with State.Seq where an act reports
	Ours   bool   // InAdopted: an earlier supervisor of ours had started it
	Ended  bool   // the server's process has ended, which is still being dealt with
	Retry  bool   // InUnsafe of a halt: the server has ended, and what it left can be parked later
	Kept   bool   // we keep the server's lock, so that nobody resumes what could not be parked
	Reason string
}

// InputKind names an input.
type InputKind string

// The inputs. Those in the second group are reports of an act and carry its number.
const (
	InBoot    InputKind = "boot"    // the supervisor is up
	InStart   InputKind = "start"   // the user wants it running
	InStop    InputKind = "stop"    // the user wants it stopped
	InRestart InputKind = "restart" // the user wants a new incarnation
	InLeave   InputKind = "leave"   // the supervisor was told to end
	InAppear  InputKind = "appear"  // a registration came that is not ours
	InHand    InputKind = "hand"    // another supervisor is to take over, server and all
	InUpgrade InputKind = "upgrade" // another program is in place, and nothing is active

	InReady   InputKind = "ready"   // the server that we started is healthy
	InAdopted InputKind = "adopted" // a living server was taken over
	InParked  InputKind = "parked"  // no server is up, all is parked, none was wanted
	InUnsafe  InputKind = "unsafe"  // the promise can't be assured
	InRefused InputKind = "refused" // starting is pointless until somebody changes something
	InDied    InputKind = "died"    // ended unasked; parked
	InLeft    InputKind = "left"    // stopped from outside, on purpose; parked
	InRenewed InputKind = "renewed" // exited 0 with another program in place: an upgrade; parked
	InStopped InputKind = "stopped" // ended as we asked; parked
	InBusy    InputKind = "busy"    // a halt that yields found something active, and has done nothing
	InKept    InputKind = "kept"    // a halt found that what the server leaves could not be parked, and has done nothing
	InTimer   InputKind = "timer"   // the back-off is over
)

// EffectKind names an effect.
type EffectKind string

// The effects.
const (
	DoLaunch   EffectKind = "launch"    // adopt a living server, else park, and start one if Spawn
	DoHalt     EffectKind = "halt"      // stop the server, or the launch under way, gracefully; then park
	DoArm      EffectKind = "arm"       // report InTimer after Delay
	DoSaveWish EffectKind = "save wish" // make Wish durable
	DoLeave    EffectKind = "leave"     // end the supervisor, and do nothing to the server
)

// Effect is something to be done, by the loop.
type Effect struct {
	Kind  EffectKind
	Seq   uint64
	Spawn bool          // DoLaunch
	Yield bool          // DoHalt: only if nothing is active
	Delay time.Duration // DoArm
}

// Reduce gives the state after in, and what is to be done. It is pure. An input
// that has no meaning in the present phase, or that an outdated act reports,
// changes nothing.
func Reduce(p Policy, s State, in Input) (State, []Effect) {
	if s.Handed {
		return s, nil // what happens from now on is the next supervisor's
	}
	switch in.Kind {
	case InBoot, InStart, InStop, InRestart, InLeave, InAppear, InHand, InUpgrade:
		return reduceWish(s, in)
	}
	if in.Seq != s.Seq {
		return s, nil
	}
	switch s.Phase {
	case Starting:
		return reduceStarting(p, s, in)
	case Running:
		return reduceRunning(p, s, in)
	case Stopping:
		return reduceStopping(p, s, in)
	case Backoff, Blocked:
		if in.Kind == InTimer && !s.Leaving {
			if s.Phase == Blocked {
				s.Reason = "" // it is found out again, or it is over
			}
			return launch(s, s.Wish == WishRunning)
		}
	}
	return s, nil
}

// reduceWish handles what comes from people and from outside.
func reduceWish(s State, in Input) (State, []Effect) {
	if s.Leaving {
		return s, nil
	}
	idle := s.Phase == Stopped || s.Phase == Backoff || s.Phase == Failed || s.Phase == Blocked
	switch in.Kind {
	case InBoot:
		if s.Phase == Stopped {
			return launch(s, s.Wish == WishRunning)
		}
	case InStart:
		s.Wish, s.Former = WishRunning, ""
		save := []Effect{{Kind: DoSaveWish}}
		if s.Phase == Running {
			s.Reason = "" // of a stop that was given up
		}
		switch {
		case idle:
			s.Deaths, s.Blocks = nil, 0
			s, fx := launch(s, true)
			return s, append(save, fx...)
		case s.Phase == Stopping, s.Phase == Starting && !s.Spawn, s.Phase == Running && in.Ended:
			s.Again = true
		}
		return s, save
	case InStop:
		if s.Phase != Stopped && s.Former == "" {
			s.Former = s.Wish
		}
		s.Wish, s.Again, s.Yields = WishStopped, false, false
		save := []Effect{{Kind: DoSaveWish}}
		if s.Phase == Stopping || s.Phase == Stopped {
			return s, save
		}
		s, fx := halt(s)
		return s, append(save, fx...)
	case InRestart:
		s.Wish, s.Former = WishRunning, ""
		save := []Effect{{Kind: DoSaveWish}}
		s.Deaths, s.Blocks, s.Yields = nil, 0, false
		if s.Phase != Stopping {
			var fx []Effect
			s, fx = halt(s)
			save = append(save, fx...)
		}
		s.Again = true
		return s, save
	case InLeave:
		s.Leaving, s.Again, s.Yields = true, false, false
		switch s.Phase {
		case Starting, Running:
			return halt(s)
		case Stopping:
			return s, nil
		}
		return s, []Effect{{Kind: DoLeave}}
	case InHand:
		// An act under way would be cut: whoever asks waits for its end, and asks again.
		if !in.Kept && (idle || s.Phase == Running && !in.Ended) {
			s.Leaving, s.Handed = true, true
			return s, []Effect{{Kind: DoLeave}}
		}
	case InUpgrade:
		switch {
		case s.Wish == WishStopped:
		case s.Phase == Failed:
			s.Deaths, s.Blocks = nil, 0
			return launch(s, true)
		case s.Phase == Running && !in.Ended:
			s, fx := halt(s)
			s.Again, s.Yields, s.Reason = true, true, in.Reason
			fx[0].Yield = true
			return s, fx
		}
	case InAppear:
		if idle {
			return launch(s, s.Wish == WishRunning && s.Phase != Stopped && s.Phase != Failed)
		}
	}
	return s, nil
}

func reduceStarting(p Policy, s State, in Input) (State, []Effect) {
	switch in.Kind {
	case InReady, InAdopted:
		s.Phase, s.Reason, s.Blocks, s.Again = Running, "", 0, false
		s.Adopted = in.Kind == InAdopted
		if s.Adopted && in.Ours && s.Wish == WishStopped {
			return halt(s) // the stop that its supervisor did not live to finish
		}
		return s, nil
	case InParked:
		again := s.Again
		s.Phase, s.Blocks, s.Again = Stopped, 0, false
		if again {
			return launch(s, true)
		}
		return s, nil
	case InUnsafe:
		return block(p, s, in)
	case InRefused:
		s.Phase, s.Reason = Failed, in.Reason
		return s, nil
	case InDied, InLeft, InRenewed: // it was ready, and had ended before that was told
		return reduceRunning(p, s, in)
	}
	return s, nil
}

func reduceRunning(p Policy, s State, in Input) (State, []Effect) {
	switch in.Kind {
	case InDied:
		return died(p, s, in)
	case InRenewed:
		return launch(s, s.Wish == WishRunning)
	case InLeft:
		again := s.Again
		s.Phase, s.Reason, s.Adopted, s.Again = Stopped, in.Reason, false, false
		if again {
			return launch(s, true)
		}
		return s, nil
	case InUnsafe:
		return block(p, s, in)
	}
	return s, nil
}

func reduceStopping(p Policy, s State, in Input) (State, []Effect) {
	switch in.Kind {
	case InStopped:
		s.Phase, s.Reason = Stopped, in.Reason
	case InDied, InLeft, InRenewed: // while a halt that yields was giving up: it is as good as stopped
		s.Phase, s.Reason = Stopped, in.Reason
	case InUnsafe:
		if in.Retry && !s.Leaving {
			s.Again, s.Yields, s.Former = false, false, "" // the wish says whether it is started then
			return block(p, s, in)
		}
		s.Phase, s.Reason, s.Unparked = Failed, in.Reason, s.Leaving
	case InKept:
		if s.Leaving { // told meanwhile, and that isn't refused
			return halt(s)
		}
		s.Phase, s.Reason, s.Again, s.Yields = Running, in.Reason, false, false
		if s.Former != "" && s.Former != s.Wish { // else the next supervisor would stop it, under a user who works on
			s.Wish, s.Former = s.Former, ""
			return s, []Effect{{Kind: DoSaveWish}}
		}
		s.Former = ""
		return s, nil
	case InBusy:
		if !s.Yields { // somebody has wanted it meanwhile whatever is active
			again := s.Again
			s, fx := halt(s)
			s.Again = again
			return s, fx
		}
		s.Phase, s.Reason, s.Again, s.Yields = Running, "", false, false
		return s, nil
	default:
		return s, nil
	}
	again := s.Again
	s.Again, s.Adopted, s.Yields, s.Former = false, false, false, ""
	switch {
	case s.Leaving:
		return s, []Effect{{Kind: DoLeave}}
	case again && s.Phase == Stopped:
		return launch(s, true)
	}
	return s, nil
}

// launch begins a new act that ends in InReady, InAdopted, InParked, InUnsafe, InRefused or InDied.
func launch(s State, spawn bool) (State, []Effect) {
	if spawn {
		s.Reason = ""
	}
	s.Phase, s.Spawn, s.Adopted, s.Next = Starting, spawn, false, time.Time{}
	s.Seq++
	return s, []Effect{{Kind: DoLaunch, Seq: s.Seq, Spawn: spawn}}
}

// halt begins a new act that ends in InStopped, InUnsafe or InKept.
func halt(s State) (State, []Effect) {
	s.Phase, s.Again, s.Next, s.Reason = Stopping, false, time.Time{}, ""
	s.Seq++
	return s, []Effect{{Kind: DoHalt, Seq: s.Seq}}
}

// block keeps the server down and looks again later, ever more slowly.
func block(p Policy, s State, in Input) (State, []Effect) {
	s.Blocks++
	s.Phase, s.Reason, s.Adopted = Blocked, in.Reason, false
	return arm(s, in.At, p.Delay(s.Blocks+1))
}

func died(p Policy, s State, in Input) (State, []Effect) {
	deaths := make([]time.Time, 0, len(s.Deaths)+1)
	for _, t := range s.Deaths {
		if in.At.Sub(t) < p.Window && !t.After(in.At) {
			deaths = append(deaths, t)
		}
	}
	s.Deaths = append(deaths, in.At)
	s.Reason, s.Adopted = in.Reason, false
	if len(s.Deaths) >= p.MaxDeaths {
		s.Phase = Failed
		s.Reason = fmt.Sprintf("gave up after %d deaths in %s; the last: %s; see: intermission logs; try again with: intermission start", len(s.Deaths), p.Window, in.Reason)
		return s, nil
	}
	if s.Wish == WishRunning {
		s.Restarts++
	}
	d := p.Delay(len(s.Deaths))
	if d == 0 {
		next, fx := launch(s, s.Wish == WishRunning)
		next.Reason = in.Reason // until it is up again
		return next, fx
	}
	s.Phase = Backoff
	return arm(s, in.At, d)
}

func arm(s State, now time.Time, d time.Duration) (State, []Effect) {
	s.Seq++
	s.Next = now.Add(d)
	return s, []Effect{{Kind: DoArm, Seq: s.Seq, Delay: d}}
}
