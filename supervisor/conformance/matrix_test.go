//go:build linux

package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"intermission/restart/faultpoint"
)

// The kill matrix: the supervisor, the server, or both are killed, or a foreign server is
// started, at every fault point, and then at random ones in random stories.
//
//	INTERMISSION_MATRIX_SEED       seed of all stories; default one that is printed
//	INTERMISSION_MATRIX_SCHEDULES  number of random schedules; default 12
//	INTERMISSION_MATRIX_ONLY       the one schedule to do again
//	INTERMISSION_MATRIX_WORKERS    worlds at once; default 3

func number(t testing.TB, variable string, fallback int64) int64 {
	t.Helper()
	text := os.Getenv("INTERMISSION_MATRIX_" + variable)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tally adds up what all schedules of a test have done.
type tally struct {
	sync.Mutex
	count
	reached map[faultpoint.Name]int
}

func (y *tally) take(w *world, n count) {
	y.Lock()
	defer y.Unlock()
	y.add(n)
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	for name, times := range w.c.reached {
		y.reached[name] += times
	}
}

// pair is one cell of the matrix.
type pair struct {
	at      faultpoint.Name
	victim  victim
	resumed bool // only from the first consent of the story on
}

// inOneWorld is how many cells one world goes through, one after the other.
const inOneWorld = 8

// TestKillMatrix strikes with each victim at each point at least once.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	seed := number(t, "SEED", time.Now().UnixNano())
	t.Logf("INTERMISSION_MATRIX_SEED=%d", seed)
	var cells []pair
	for _, at := range faultpoint.All {
		if only := os.Getenv("INTERMISSION_MATRIX_POINT"); only != "" && !strings.HasPrefix(string(at), only) {
			continue
		}
		for _, v := range victims {
			cells = append(cells, pair{at, v, false})
			if at == faultpoint.ServerClaimed || at == faultpoint.ServerRequested {
				cells = append(cells, pair{at, v, true})
			}
		}
	}
	shuffle := rand.New(rand.NewPCG(uint64(seed), 0))
	shuffle.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	all := &tally{reached: map[faultpoint.Name]int{}}
	side(t, int64((len(cells)+inOneWorld-1)/inOneWorld), func(t *testing.T, n int64) {
		kind, mine := []string{"claims", "claims", "early"}[n%3], cells[n*inOneWorld:min((n+1)*inOneWorld, int64(len(cells)))]
		if slices.ContainsFunc(mine, func(cell pair) bool { return cell.at == faultpoint.ConsentUnknown }) {
			kind = "claims" // the early kind can tell what arrived
		}
		w := newWorld(t, kind, "[[slow n=400 ms=50]]")
		all.take(w, w.cells(t, mine))
	})
	t.Log(all.count)
	if os.Getenv("INTERMISSION_MATRIX_POINT") != "" {
		return
	}
	for _, name := range faultpoint.All {
		if all.reached[name] == 0 {
			t.Errorf("%s was never reached", name)
		}
	}
}

// cells goes through the story again and again, with one cell armed each time.
func (w *world) cells(t *testing.T, cells []pair) (sum count) {
	t.Helper()
	for n, cell := range cells {
		i := &injection{at: cell.at, nth: 1, victim: cell.victim, later: n%2 == 1}
		for round := 0; !i.fired && round < 3; round++ {
			w.c.tell("---- %s", i)
			w.c.arm()
			w.story(i, cell.resumed)
			if cell.at == faultpoint.ServerSweeping || cell.at == faultpoint.ServerSwept {
				w.awaitSweep(i) // the story may be over before any server has got so far
			}
			if err := w.settle(); err != nil {
				t.Fatalf("%s: not settled: %v", i, err)
			}
			got, broken := w.check()
			for _, what := range broken {
				t.Errorf("%s: %s", i, what)
			}
			if t.Failed() {
				return sum
			}
			got.Faults = n + 1
			sum = got
		}
		if !i.fired {
			t.Errorf("%s: never reached", i)
		}
	}
	return sum
}

// story leads past every point: sessions at work, a stop, a start, consents, a no, a
// crash of the server and a handover.
func (w *world) story(i *injection, fromConsent bool) {
	if !fromConsent {
		w.c.arm(i)
	}
	unlucky := i.at == faultpoint.ConsentPutBack || i.at == faultpoint.ConsentUnknown
	w.launch()
	w.rise()
	if i.at == faultpoint.ServerSweeping || i.at == faultpoint.ServerSwept { // some time after it is up
		w.c.await(2*time.Second, nil, func() bool { return i.fired })
		w.launch()
		w.rise()
	}
	w.begin("[[slow n=400 ms=50]]")
	w.begin("[[slow n=400 ms=50]]")
	w.begin("[[slow n=2 ms=1]]")
	w.stop()
	w.launch()
	w.rise()
	switch {
	case i.at == faultpoint.ConsentPutBack:
		w.misbehave("resume-500")
	case i.at == faultpoint.ConsentUnknown:
		w.misbehave("drop-before")
	}
	if fromConsent {
		w.c.arm(i)
	}
	w.resume(0, 1)
	w.misbehave("")
	w.launch()
	if unlucky {
		return
	}
	w.dismiss(0)
	w.interrupt(0)
	w.begin("[[slow n=400 ms=50]]")
	w.launch()
	w.handover()
	w.launch()
	w.rise()
	w.resume(0, 2)
	w.killServers()
	w.launch()
}

// side runs so many subtests, some side by side: more than t.Parallel would, for they
// mostly wait.
func side(t *testing.T, n int64, f func(t *testing.T, n int64)) {
	t.Helper()
	next := make(chan int64)
	var workers sync.WaitGroup
	for range number(t, "WORKERS", 3) {
		workers.Go(func() {
			for n := range next {
				t.Run(strconv.FormatInt(n, 10), func(t *testing.T) { f(t, n) })
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// TestRandomSchedules tells random stories, with random faults.
func TestRandomSchedules(t *testing.T) {
	t.Parallel()
	seed := number(t, "SEED", time.Now().UnixNano())
	only := number(t, "ONLY", -1)
	t.Logf("INTERMISSION_MATRIX_SEED=%d", seed)
	all := &tally{reached: map[faultpoint.Name]int{}}
	side(t, number(t, "SCHEDULES", 12), func(t *testing.T, n int64) {
		if only >= 0 && n != only {
			return
		}
		r := rand.New(rand.NewPCG(uint64(seed), uint64(n)+1))
		w := newWorld(t, []string{"claims", "claims", "early"}[r.IntN(3)], []string{"[[slow n=3 ms=5]]", "[[slow n=400 ms=50]]"}[r.IntN(2)])
		faults := w.schedule(r)
		if err := w.settle(); err != nil {
			t.Errorf("not settled: %v", err)
		}
		got, broken := w.check()
		for _, what := range broken {
			t.Error(what)
		}
		for _, i := range faults {
			if i.fired {
				got.Faults++
			}
		}
		all.take(w, got)
		if t.Failed() {
			t.Logf("again: INTERMISSION_MATRIX_SEED=%d INTERMISSION_MATRIX_ONLY=%d INTERMISSION_MATRIX_SCHEDULES=%d", seed, n, n+1)
		}
		if all.In%100 == 0 {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), all.count)
		}
	})
	t.Log(all.count)
}

// schedule tells one random story. The same r tells the same one; how its acts and
// the processes interleave is the machine's.
func (w *world) schedule(r *rand.Rand) (faults []*injection) {
	for range 1 + r.IntN(4) {
		faults = append(faults, &injection{at: faultpoint.All[r.IntN(len(faultpoint.All))], nth: 1 + r.IntN(3),
			victim: victims[r.IntN(len(victims))], later: r.IntN(2) == 0})
	}
	w.c.arm(faults...)
	w.launch()
	w.rise()
	for range 2 + r.IntN(2) {
		w.begin("[[slow n=400 ms=50]]")
	}
	[]func(){w.restart, w.stop, w.killServers, w.killSupervisor}[r.IntN(4)]()
	var beside sync.WaitGroup
	defer beside.Wait()
	for range 6 + r.IntN(8) {
		act, launch, rise := w.act(r), r.IntN(4) > 0, r.IntN(2) == 0
		if launch {
			w.launch()
		}
		if launch && rise {
			w.rise()
		}
		if r.IntN(4) == 0 {
			beside.Go(act)
			continue
		}
		act()
	}
	return faults
}

// act is something that a user, or somebody else, does.
func (w *world) act(r *rand.Rand) func() {
	n := r.IntN(1000)
	directive := []string{"[[slow n=2 ms=1]]", "[[slow n=400 ms=50]]", "[[slow n=400 ms=50]]"}[r.IntN(3)]
	switch k := r.IntN(20); {
	case k < 4:
		return func() { w.begin(directive) }
	case k < 5:
		return func() {
			if id := w.session(n); id != "" {
				w.instruct(id, directive)
			}
		}
	case k < 6:
		return w.stop
	case k < 7:
		return w.restart
	case k < 11:
		return func() { w.resume(n, 1) }
	case k < 14:
		return func() { w.resume(n, 2+n%3) }
	case k < 15:
		return func() { w.dismiss(n) }
	case k < 16:
		return func() { w.interrupt(n) }
	case k < 17:
		return w.handover
	case k < 18:
		return w.killServers
	case k < 19:
		fault := []string{"resume-500", "drop-before", "drop-resume", "crash-after-resume=50ms", ""}[n%5]
		return func() { w.misbehave(fault) }
	default:
		return w.foreigner
	}
}
