package supervisor

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var phases = []Phase{Stopped, Starting, Running, Stopping, Backoff, Failed, Blocked}

var inputs = []InputKind{InBoot, InStart, InStop, InRestart, InLeave, InAppear, InHand, InUpgrade,
	InReady, InAdopted, InParked, InUnsafe, InRefused, InDied, InLeft, InRenewed, InStopped, InBusy, InKept, InTimer}

// edges gives every change of phase that Reduce makes, as "from input to".
func edges() []string {
	now := time.Unix(1_800_000_000, 0)
	set := map[string]bool{}
	for _, from := range phases {
		for _, in := range inputs {
			for _, wish := range []Wish{WishRunning, WishStopped} {
				for deaths := range DefaultPolicy.MaxDeaths {
					for flags := range 32 {
						s := State{Phase: from, Wish: wish, Seq: 7, Again: flags&1 > 0, Spawn: flags&2 > 0, Yields: flags&8 > 0}
						for range deaths {
							s.Deaths = append(s.Deaths, now)
						}
						next, _ := Reduce(DefaultPolicy, s, Input{Kind: in, Seq: 7, At: now, Ours: flags&4 > 0, Retry: flags&16 > 0})
						if next.Phase != from {
							set[string(from)+" "+string(in)+" "+string(next.Phase)] = true
						}
					}
				}
			}
		}
	}
	var out []string
	for e := range set {
		out = append(out, e)
	}
	slices.Sort(out)
	return out
}

// documented reads the same edges from the diagram in the package comment: lines "from ── a, b ──▶ to".
func documented(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "supervisor.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*(\w+)\s+─+ ([\w, ]+?) ─+▶ (\w+)$`)
	var out []string
	for _, m := range line.FindAllStringSubmatch(f.Doc.Text(), -1) {
		for in := range strings.SplitSeq(m[2], ", ") {
			out = append(out, m[1]+" "+in+" "+m[3])
		}
	}
	slices.Sort(out)
	return out
}

func TestDiagramIsTrue(t *testing.T) {
	if diff := cmp.Diff(documented(t), edges()); diff != "" {
		t.Errorf("the diagram in the package comment and Reduce differ (-comment +code):\n%s", diff)
	}
}

func TestDelay(t *testing.T) {
	var got []time.Duration
	for n := range 9 {
		got = append(got, DefaultPolicy.Delay(n))
	}
	want := []time.Duration{0, 0, 1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d := DefaultPolicy.Delay(1 << 40); d != DefaultPolicy.MaxDelay {
		t.Errorf("a huge count gives %s", d)
	}
}

func TestDeathsOutsideTheWindowAreForgotten(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := State{Phase: Running, Wish: WishRunning}
	for range 20 {
		now = now.Add(DefaultPolicy.Window)
		s, _ = Reduce(DefaultPolicy, s, Input{Kind: InDied, Seq: s.Seq, At: now})
		if s.Phase != Starting {
			t.Fatalf("phase %s after a death alone in its window", s.Phase)
		}
		s, _ = Reduce(DefaultPolicy, s, Input{Kind: InReady, Seq: s.Seq, At: now})
	}
	if len(s.Deaths) != 1 || s.Restarts != 20 {
		t.Errorf("%d deaths remembered, %d restarts", len(s.Deaths), s.Restarts)
	}
}

func TestGivesUpAndStartsAgainWhenTold(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := State{Phase: Starting, Wish: WishRunning, Seq: 1}
	for range DefaultPolicy.MaxDeaths {
		s, _ = Reduce(DefaultPolicy, s, Input{Kind: InDied, Seq: s.Seq, At: now, Reason: "exit 1"})
		if s.Phase == Backoff {
			s, _ = Reduce(DefaultPolicy, s, Input{Kind: InTimer, Seq: s.Seq, At: now})
		}
	}
	if s.Phase != Failed || !strings.Contains(s.Reason, "exit 1") || !strings.Contains(s.Reason, "intermission start") {
		t.Fatalf("phase %s, reason %q", s.Phase, s.Reason)
	}
	s, fx := Reduce(DefaultPolicy, s, Input{Kind: InStart, At: now})
	if s.Phase != Starting || len(s.Deaths) != 0 || !slices.ContainsFunc(fx, func(e Effect) bool { return e.Kind == DoLaunch && e.Spawn }) {
		t.Errorf("start after giving up: %+v %+v", s, fx)
	}
}

// A stop that could not be safe is refused, and what was wanted is still known; not
// when the supervisor is to end.
func TestReduceKeeps(t *testing.T) {
	running := State{Phase: Running, Wish: WishRunning, Seq: 4, Adopted: true}
	for kind, saves := range map[InputKind]int{InStop: 1, InRestart: 0, InUpgrade: 0} {
		s, _ := Reduce(DefaultPolicy, running, Input{Kind: kind})
		next, fx := Reduce(DefaultPolicy, s, Input{Kind: InKept, Seq: s.Seq, Reason: "full"})
		if next.Phase != Running || next.Reason != "full" || next.Wish != WishRunning || next.Former != "" || next.Again || next.Yields || !next.Adopted || len(fx) != saves {
			t.Errorf("%s: %+v %+v", kind, next, fx)
		}
		if saves > 0 && fx[0].Kind != DoSaveWish {
			t.Errorf("%s: the wish is not saved: %+v", kind, fx)
		}
		s, _ = Reduce(DefaultPolicy, s, Input{Kind: InLeave})
		next, fx = Reduce(DefaultPolicy, s, Input{Kind: InKept, Seq: s.Seq})
		if next.Phase != Stopping || !next.Leaving || len(fx) != 1 || fx[0].Kind != DoHalt || fx[0].Yield {
			t.Errorf("%s, then leave: %+v %+v", kind, next, fx)
		}
	}
}

// What a stopped server left and could not be parked is tried again by itself, and
// after that nothing is said of it any more.
func TestReduceRetriesAPark(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for kind, want := range map[InputKind]Phase{InStop: Stopped, InRestart: Running} {
		s, _ := Reduce(DefaultPolicy, State{Phase: Running, Wish: WishRunning, Seq: 4}, Input{Kind: kind})
		s, fx := Reduce(DefaultPolicy, s, Input{Kind: InUnsafe, Seq: s.Seq, At: now, Reason: "full", Retry: true})
		if s.Phase != Blocked || s.Reason != "full" || s.Next.IsZero() || len(fx) != 1 || fx[0].Kind != DoArm {
			t.Fatalf("%s: %+v %+v", kind, s, fx)
		}
		s, fx = Reduce(DefaultPolicy, s, Input{Kind: InTimer, Seq: s.Seq})
		if s.Phase != Starting || len(fx) != 1 || fx[0].Spawn != (want == Running) {
			t.Fatalf("%s, later: %+v %+v", kind, s, fx)
		}
		end := Input{Kind: InParked, Seq: s.Seq}
		if want == Running {
			end.Kind = InReady
		}
		if s, _ = Reduce(DefaultPolicy, s, end); s.Phase != want || s.Reason != "" {
			t.Errorf("%s, in the end: %+v", kind, s)
		}
	}
	leaving := State{Phase: Stopping, Leaving: true, Seq: 4}
	if s, fx := Reduce(DefaultPolicy, leaving, Input{Kind: InUnsafe, Seq: 4, Retry: true}); s.Phase != Failed || len(fx) != 1 || fx[0].Kind != DoLeave {
		t.Errorf("leaving: %+v %+v", s, fx)
	}
}

// TestAnySequence holds what must be true whatever happens in whatever order.
func TestAnySequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		s := State{Phase: Stopped, Wish: WishRunning}
		for range rapid.IntRange(1, 60).Draw(t, "n") {
			before := s
			in := Input{
				Kind: rapid.SampledFrom(inputs).Draw(t, "kind"),
				Seq:  s.Seq - uint64(rapid.IntRange(0, 1).Draw(t, "stale")),
				At:   now.Add(time.Duration(rapid.IntRange(-3600, 3600).Draw(t, "clock")) * time.Second),
			}
			var fx []Effect
			s, fx = Reduce(DefaultPolicy, s, in)
			report := !slices.Contains(inputs[:8], in.Kind)
			if report && in.Seq != before.Seq && !cmp.Equal(before, s) {
				t.Fatalf("a stale %s changed %+v to %+v", in.Kind, before, s)
			}
			acts := 0
			for _, e := range fx {
				switch e.Kind {
				case DoLaunch:
					acts++
					if e.Seq != s.Seq || s.Phase != Starting {
						t.Fatalf("launch in %+v", s)
					}
					if e.Spawn && s.Wish == WishStopped {
						t.Fatalf("started against the wish by %s in %+v", in.Kind, before)
					}
				case DoHalt:
					acts++
					if e.Seq != s.Seq || s.Phase != Stopping {
						t.Fatalf("halt in %+v", s)
					}
				case DoArm:
					acts++
					if e.Seq != s.Seq || s.Phase != Backoff && s.Phase != Blocked {
						t.Fatalf("timer in %+v", s)
					}
				}
			}
			if s.Handed && (s.Phase != before.Phase && before.Handed || acts > 0) {
				t.Fatalf("%s did something after the handover: %+v, %+v", in.Kind, s, fx)
			}
			if acts > 1 {
				t.Fatalf("%d acts at once: %+v", acts, fx)
			}
			if s.Phase == Starting && before.Leaving {
				t.Fatalf("started while leaving: %+v by %s", before, in.Kind)
			}
		}
	})
}
