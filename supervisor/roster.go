package supervisor

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"intermission/restart"
	"intermission/supervisor/control"
)

// roster is who executes in the current incarnation, since when, and when each
// last did something, and what it waits for. It is safe for concurrent use. changed
// is called, with no lock held, when somebody came or went, waits for something else,
// fell silent for control.QuietAfter, or did something after that; not at every progress.
type roster struct {
	changed func()

	mu      sync.Mutex
	working map[string]*execution
	past    map[string]past
	last    time.Time   // when somebody was last known to work who doesn't any more
	timer   *time.Timer // the one for all; it runs only while somebody works who isn't quiet
}

// execution is one of a session that runs now.
type execution struct {
	started  int64     // Unix milliseconds; names it
	told     int64     // its start by the server's clock, Unix milliseconds; 0 when it didn't say
	seen     time.Time // first, by us
	progress time.Time
	quiet    bool   // its silence was told
	waiting  string // "permission", "question" or ""
}

// past is what is remembered of a session that worked: no two executions of it
// may have one name, and an answer that was asked for before its end is outdated.
type past struct {
	started int64 // Unix milliseconds, of its newest execution
	ended   time.Time
}

// maxPast is how many sessions are remembered. Of the others, only a clock that
// was set back could give a name twice.
const maxPast = 4096

func newRoster(changed func()) *roster {
	return &roster{changed: changed, working: map[string]*execution{}, past: map[string]past{}}
}

// observe takes in an event.
func (r *roster) observe(e restart.Event) {
	if r.take(e) {
		r.changed()
	}
}

// take is observe; it tells whether that is shown.
func (r *roster) take(e restart.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.working[e.Session]
	if x != nil && e.Kind == restart.EventStarted && x.told != 0 && e.At > x.told {
		r.leave(e.Session) // its end was missed: this is another one
		x = nil
	}
	switch {
	case e.Kind == restart.EventStarted && x == nil:
		r.enter(e.Session, time.Now().UnixMilli())
		r.working[e.Session].told = e.At
	case e.Kind == restart.EventStarted || e.Kind == restart.EventProgress:
		if x == nil {
			return false // a late word of one that has ended
		}
		if !x.move() {
			return false
		}
	case x == nil:
		return false
	default:
		r.leave(e.Session)
	}
	r.arm()
	return true
}

// move notes that it did something. It tells whether that is shown: else the timer
// finds out that it came too early. r.mu is held.
func (x *execution) move() bool {
	was := x.quiet
	x.progress, x.quiet = time.Now(), false
	return was
}

// wait notes what execution started of a session waits for; "" for nothing any more.
// To ask, and to be answered, is to do something.
func (r *roster) wait(id string, started int64, what string) {
	r.mu.Lock()
	x := r.working[id]
	if x == nil || x.started != started || x.waiting == what {
		r.mu.Unlock()
		return
	}
	x.waiting = what
	x.move()
	r.arm()
	r.mu.Unlock()
	r.changed()
}

// waits tells whether the session is known to wait for something.
func (r *roster) waits(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.working[id]
	return x != nil && x.waiting != ""
}

// enter begins an execution, or begins to know one, that has started at (Unix
// milliseconds). Its name is new, whatever clocks do. r.mu is held.
func (r *roster) enter(id string, at int64) {
	now := time.Now()
	x := &execution{started: max(min(at, now.UnixMilli()), r.past[id].started+1), seen: now, progress: now}
	if len(r.past) >= maxPast {
		maps.DeleteFunc(r.past, func(id string, p past) bool {
			return r.working[id] == nil && p.started < now.UnixMilli()
		})
	}
	r.working[id], r.past[id] = x, past{started: x.started}
}

// leave ends an execution. r.mu is held.
func (r *roster) leave(id string) {
	r.past[id] = past{started: r.working[id].started, ended: time.Now()}
	delete(r.working, id)
	r.last = time.Now()
}

// touch counts as somebody's work that ends now.
func (r *roster) touch() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
}

// idle tells for how long nobody has worked; 0 while somebody does.
func (r *roster) idle() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.working) > 0 {
		return 0
	}
	return time.Since(r.last)
}

// resync makes it what the server said, asked at (taken before asking). Who is
// known already keeps its times; of others since tells, where it does, when they
// started (Unix milliseconds): perhaps long before us.
func (r *roster) resync(active []string, asked time.Time, since map[string]int64) {
	r.mu.Lock()
	for id, x := range r.working {
		if !x.seen.After(asked) && !slices.Contains(active, id) {
			r.leave(id)
		}
	}
	for _, id := range active {
		if r.working[id] == nil && !r.past[id].ended.After(asked) {
			at, known := since[id]
			if !known {
				at = time.Now().UnixMilli()
			}
			r.enter(id, at)
		}
	}
	r.arm()
	r.mu.Unlock()
	r.changed()
}

// clear is the end of an incarnation.
func (r *roster) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.working {
		r.leave(id)
	}
	r.arm()
}

// arm has the timer run until the next one may have been silent for long enough,
// and not at all where none can be. r.mu is held.
func (r *roster) arm() {
	var next time.Time
	for _, x := range r.working {
		if due := x.progress.Add(control.QuietAfter); !x.quiet && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	switch {
	case next.IsZero() && r.timer != nil:
		r.timer.Stop()
		r.timer = nil
	case !next.IsZero() && r.timer == nil:
		r.timer = time.AfterFunc(time.Until(next), r.look)
	}
}

// look is the timer's: it finds who has been silent for QuietAfter.
func (r *roster) look() {
	r.mu.Lock()
	told := false
	for _, x := range r.working {
		if !x.quiet && time.Since(x.progress) >= control.QuietAfter {
			x.quiet, told = true, true
		}
	}
	if r.timer != nil {
		r.timer.Stop() // a late firing may meet a newer one
		r.timer = nil
	}
	r.arm()
	r.mu.Unlock()
	if told {
		r.changed()
	}
}

// list gives who works, the earliest start first.
func (r *roster) list() []control.Working {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []control.Working{}
	for id, x := range r.working {
		list = append(list, control.Working{
			ID: id, StartedAt: x.started, ProgressAt: max(x.started, x.progress.UnixMilli()), Quiet: x.quiet, WaitingFor: x.waiting,
		})
	}
	slices.SortFunc(list, func(a, b control.Working) int {
		return cmp.Or(cmp.Compare(a.StartedAt, b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// ids gives who works, sorted.
func (r *roster) ids() []string { return idsOf(r.list()) }

func idsOf(list []control.Working) []string {
	ids := make([]string, len(list))
	for i, w := range list {
		ids[i] = w.ID
	}
	slices.Sort(ids)
	return ids
}

// newest gives the name of the session's execution, or of its last one; 0 when none is known.
func (r *roster) newest(id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.past[id].started
}

// told gives when by the server the session's execution started began (Unix ms), 0
// when that isn't known.
func (r *roster) told(id string, started int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.working[id]; x != nil && x.started == started {
		return x.told
	}
	return 0
}

// started gives the name of the session's execution, 0 when it doesn't work.
func (r *roster) started(id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.working[id]; x != nil {
		return x.started
	}
	return 0
}
