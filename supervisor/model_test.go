package supervisor

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// modelWorld is what Reduce's effects are done to: one server or none, its lock, what
// it left, and the wish as it is on the disk. Acts end in any order that the loop
// allows: a new one waits for the one before it, whose report may still come late.
type modelWorld struct {
	*rapid.T
	s       State
	now     time.Time
	alive   bool // a server lives, and we attend it or have found it
	foreign bool // another starter's server lives, which no launch has found yet
	dirty   bool // a server has ended, and what it left isn't parked
	ended   bool // our server's end is being dealt with
	disk    Wish
	act     *Effect // the launch or halt under way
	timer   *Effect
	late    []Input // what outdated acts and timers have to say, again
	left    bool
}

// in reduces one input and begins its effects.
func (w *modelWorld) in(in Input) {
	w.Helper()
	w.now = w.now.Add(time.Second)
	in.At, in.Ended, in.Kept = w.now, w.ended, w.dirty && !w.alive
	before := w.s
	var fx []Effect
	w.s, fx = Reduce(DefaultPolicy, w.s, in)
	for _, e := range fx {
		switch e.Kind {
		case DoSaveWish:
			w.disk = w.s.Wish
		case DoLaunch, DoHalt:
			if before.Handed || w.left {
				w.Fatalf("%s after we had left: %+v", e.Kind, before)
			}
			if w.act != nil { // cancelled; what it reports is stale
				w.late = append(w.late, Input{Kind: InUnsafe, Seq: w.act.Seq, Reason: "cancelled"}, Input{Kind: InReady, Seq: w.act.Seq})
			}
			w.act = &e
		case DoArm:
			if w.timer != nil {
				w.late = append(w.late, Input{Kind: InTimer, Seq: w.timer.Seq})
			}
			w.timer = &e
		case DoLeave:
			if w.left {
				w.Fatalf("left twice")
			}
			w.left = true
		}
	}
}

// report ends the act under way.
func (w *modelWorld) report(kind InputKind, retry, ours bool) {
	w.Helper()
	seq := w.act.Seq
	w.act = nil
	w.in(Input{Kind: kind, Seq: seq, Reason: string(kind), Retry: retry, Ours: ours})
	w.late = append(w.late, Input{Kind: kind, Seq: seq, Retry: retry, Ours: ours})
}

// launch is what a launch does to the world; how chooses where it goes wrong.
func (w *modelWorld) launch(how string) {
	switch {
	case w.alive && !w.ended, w.foreign:
		w.alive, w.foreign = true, false
		w.report(InAdopted, false, rapid.Bool().Draw(w.T, "ours"))
	case how == "unsafe":
		w.report(InUnsafe, false, false)
	default:
		w.alive, w.ended, w.dirty = false, false, false // parked
		switch {
		case how == "refused":
			w.report(InRefused, false, false)
		case !w.act.Spawn:
			w.report(InParked, false, false)
		default:
			w.spawn(how)
		}
	}
}

func (w *modelWorld) spawn(how string) {
	w.Helper()
	if w.alive || w.dirty {
		w.Fatalf("a server is started beside another (%v), or before a park (%v)", w.alive, w.dirty)
	}
	if how == "dies" {
		w.report(InDied, false, false)
		return
	}
	w.alive = true
	w.report(InReady, false, false)
}

// halt is what a halt does to it.
func (w *modelWorld) halt(how string) {
	switch {
	case w.act.Yield && how == "busy" && w.alive && !w.ended:
		w.report(InBusy, false, false)
	case how == "kept" && w.alive && !w.ended && !w.s.Leaving:
		w.report(InKept, false, false)
	case how == "unsafe" && w.alive:
		w.dirty = true
		w.alive, w.ended = false, false
		w.report(InUnsafe, true, false)
	case how == "immortal" && w.alive && !w.ended:
		w.report(InUnsafe, false, false)
	default:
		w.alive, w.ended, w.dirty = false, false, false
		w.report(InStopped, false, false)
	}
}

func (w *modelWorld) acts() map[string]func(*rapid.T) {
	user := func(kinds ...InputKind) func(*rapid.T) {
		return func(t *rapid.T) { w.in(Input{Kind: rapid.SampledFrom(kinds).Draw(t, "kind")}) }
	}
	return map[string]func(*rapid.T){
		"":       w.check,
		"people": user(InStart, InStop, InRestart),
		"others": user(InAppear, InUpgrade, InHand),
		"leave": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "rare") > 0 {
				return
			}
			w.in(Input{Kind: InLeave})
		},
		"act": func(t *rapid.T) {
			if w.act == nil {
				return
			}
			how := rapid.SampledFrom([]string{"", "", "", "", "unsafe", "refused", "dies", "busy", "kept", "immortal"}).Draw(t, "how")
			if w.act.Kind == DoLaunch {
				w.launch(how)
			} else {
				w.halt(how)
			}
		},
		"timer": func(t *rapid.T) {
			if w.timer == nil {
				return
			}
			seq := w.timer.Seq
			w.timer = nil
			w.late = append(w.late, Input{Kind: InTimer, Seq: seq})
			w.in(Input{Kind: InTimer, Seq: seq})
		},
		"death": func(t *rapid.T) {
			if !w.alive || w.ended || w.act != nil {
				return
			}
			w.ended = true
		},
		"end told": func(t *rapid.T) { // parked by its attendant, or not
			if !w.ended || w.act != nil {
				return
			}
			kind := rapid.SampledFrom([]InputKind{InDied, InLeft, InRenewed, InUnsafe}).Draw(t, "kind")
			w.alive, w.ended, w.dirty = false, false, kind == InUnsafe
			w.in(Input{Kind: kind, Seq: w.s.Seq, Reason: "ended", Retry: true})
		},
		"foreign start": func(t *rapid.T) {
			if w.alive || w.foreign || w.dirty { // else its lock is held, by it or by us
				return
			}
			w.foreign = true
		},
		"late": func(t *rapid.T) {
			var old []Input
			for _, in := range w.late {
				if in.Seq != w.s.Seq { // each reports once
					old = append(old, in)
				}
			}
			if len(old) == 0 {
				return
			}
			in := rapid.SampledFrom(old).Draw(t, "input")
			before := w.s
			w.in(in)
			if !cmp.Equal(before, w.s) {
				w.Fatalf("a late %s of act %d changed %+v to %+v", in.Kind, in.Seq, before, w.s)
			}
		},
	}
}

// check is what holds at any time.
func (w *modelWorld) check(*rapid.T) {
	if w.s.Wish != w.disk {
		w.Fatalf("the wish is %s, and %s on the disk", w.s.Wish, w.disk)
	}
	if w.act == nil && !w.left && (w.s.Phase == Starting || w.s.Phase == Stopping) {
		w.Fatalf("%s, and nothing is under way that would end it", w.s.Phase)
	}
	if w.act != nil && w.act.Seq != w.s.Seq {
		w.Fatalf("act %d is under way in %+v", w.act.Seq, w.s)
	}
	if (w.s.Phase == Backoff || w.s.Phase == Blocked) && !w.left && (w.timer == nil || w.timer.Seq != w.s.Seq) {
		w.Fatalf("%s, and nothing wakes it: %+v", w.s.Phase, w.timer)
	}
	if w.s.Phase == Running && !w.alive {
		w.Fatalf("running, and no server is: %+v", w.s)
	}
	if w.alive && !w.ended && w.act == nil && w.s.Phase != Running && w.s.Phase != Failed {
		w.Fatalf("%s, and a server runs: %+v", w.s.Phase, w.s)
	}
}

// settle lets everything end well, and says whether it does.
func (w *modelWorld) settle() {
	for range 50 {
		switch {
		case w.left:
			return
		case w.act != nil && w.act.Kind == DoLaunch:
			w.launch("")
		case w.act != nil:
			w.halt("")
		case w.ended:
			w.alive, w.ended = false, false
			w.in(Input{Kind: InDied, Seq: w.s.Seq})
		case w.timer != nil && w.timer.Seq == w.s.Seq && (w.s.Phase == Backoff || w.s.Phase == Blocked):
			seq := w.timer.Seq
			w.timer = nil
			w.in(Input{Kind: InTimer, Seq: seq})
		default:
			if !slices.Contains([]Phase{Running, Stopped, Failed}, w.s.Phase) {
				w.Fatalf("it rests in %+v", w.s)
			}
			return
		}
		w.check(w.T)
	}
	w.Fatalf("it comes to no rest: %+v", w.s)
}

// TestStateModel does Reduce's effects to a small world.
func TestStateModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		wish := rapid.SampledFrom([]Wish{WishRunning, WishStopped}).Draw(t, "wish")
		w := &modelWorld{T: t, s: State{Phase: Stopped, Wish: wish}, disk: wish, now: time.Unix(1_800_000_000, 0),
			dirty: rapid.Bool().Draw(t, "unclean")}
		w.in(Input{Kind: InBoot})
		acts := w.acts()
		for name, act := range acts {
			acts[name] = func(t *rapid.T) {
				w.T = t
				if w.left && name != "late" && name != "" {
					return
				}
				act(t)
			}
		}
		t.Repeat(acts)
		w.T = t
		w.settle()
		if !w.left && w.s.Wish == WishStopped && w.s.Phase == Running && !w.s.Adopted && w.s.Reason == "" {
			t.Fatalf("stopped is wanted, and it runs: %+v", w.s)
		}
	})
}
