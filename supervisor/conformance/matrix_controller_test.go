//go:build linux

package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"intermission/restart/faultpoint"
)

// victim is what a fault hits.
type victim string

const (
	hitSupervisor victim = "the supervisor is killed"
	hitServer     victim = "the server is killed"
	hitBoth       victim = "both are killed"
	comesForeign  victim = "somebody starts the service"
)

var victims = []victim{hitSupervisor, hitServer, hitBoth, comesForeign}

// injection is one fault: it strikes at the nth arrival at a point since it was armed.
type injection struct {
	at     faultpoint.Name
	nth    int
	victim victim
	later  bool // a supervisor that was killed is started only when the story goes on
	fired  bool
}

func (i *injection) String() string {
	text := fmt.Sprintf("%s #%d: %s", i.at, i.nth, i.victim)
	if i.later {
		text += ", the next comes later"
	}
	return text
}

// arrival is what a process says at a point (faultpoint.Arrival, which is not built here).
type arrival struct {
	PID  int             `json:"pid"`
	Name faultpoint.Name `json:"name"`
	Held time.Duration   `json:"held"`
}

// served is a server that has had the service's lock.
type served struct {
	pid     int
	at      int64 // Unix milliseconds: when it had it
	foreign bool  // somebody else has started it
	guarded bool  // a supervisor stood guard, so that there is nothing that it could resume
	over    bool  // it was killed by the matrix, or is no longer registered
	swept   bool  // it has resumed what it found
	seen    bool  // a supervisor has opened its page in the ledger, or started it
}

// controller hears of every arrival in one sandbox, and says when to go on.
type controller struct {
	strike func(*injection) // does what a fault does

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each arrival
	armed      []*injection
	reached    map[faultpoint.Name]int
	servers    []*served
	foreigners map[int]bool
	onGuard    map[int]bool // supervisors that have parked, or have found a server
	violations []string
	longest    time.Duration // for which the write lock was held
	story      []string      // what was done, for a failure's report
	began      time.Time
}

func newController(t testing.TB, socket string, strike func(*injection)) *controller {
	t.Helper()
	c := &controller{strike: strike, changed: make(chan struct{}), reached: map[faultpoint.Name]int{},
		foreigners: map[int]bool{}, onGuard: map[int]bool{}, began: time.Now()}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return c
}

func (c *controller) serve(conn net.Conn) {
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return // killed on its way
	}
	var a arrival
	if err := json.Unmarshal(line, &a); err != nil {
		c.violate("cannot read an arrival: %v", err)
		return
	}
	if i := c.arrive(a); i != nil {
		c.tell("%s (pid %d): %s", a.Name, a.PID, i)
		c.strike(i)
	}
	_, _ = conn.Write([]byte{'\n'}) // it may be dead by now
}

// arrive notes an arrival, and gives the fault that strikes there.
func (c *controller) arrive(a arrival) *injection {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached[a.Name]++
	switch a.Name {
	case faultpoint.StartParked, faultpoint.HandoverFound:
		c.onGuard[a.PID] = true
	case faultpoint.LockLetGo:
		c.longest = max(c.longest, a.Held)
		if a.Held > lockHeld {
			c.violations = append(c.violations, fmt.Sprintf("the server's database was locked for %v", a.Held))
		}
	case faultpoint.HandoverLeaving: // from here to the next one nobody can stand guard
		delete(c.onGuard, a.PID)
	case faultpoint.StartBegun:
		for _, s := range c.servers {
			s.seen = s.seen || !s.over
		}
	case faultpoint.ServerLocked:
		c.locked(a.PID)
	case faultpoint.ServerSwept, faultpoint.ServerStopped:
		for _, s := range c.servers {
			if s.pid == a.PID {
				s.swept, s.over = s.swept || a.Name == faultpoint.ServerSwept, s.over || a.Name == faultpoint.ServerStopped
			}
		}
	}
	close(c.changed)
	c.changed = make(chan struct{})
	for _, i := range c.armed {
		if i.at != a.Name || i.fired {
			continue
		}
		if i.nth--; i.nth <= 0 {
			i.fired = true
			return i
		}
	}
	return nil
}

// lockHeld is what DESIGN.md promises at most.
const lockHeld = 250 * time.Millisecond

// locked notes that a server has the lock, which proves that no other has. c.mu is held.
func (c *controller) locked(pid int) {
	for _, s := range c.servers {
		if !s.over && alive(s.pid) {
			go c.mustEnd(s.pid, pid) // its lock is gone a moment before it is
		}
	}
	guarded := false
	for sup := range c.onGuard {
		guarded = guarded || alive(sup)
	}
	c.servers = append(c.servers, &served{pid: pid, at: time.Now().UnixMilli(), foreign: c.foreigners[pid], guarded: guarded, seen: !c.foreigners[pid]})
}

// mustEnd holds that a server that has lost its lock to another ends.
func (c *controller) mustEnd(pid, next int) {
	if err := poll(2*time.Second, func() (bool, error) { return !alive(pid), nil }); err != nil {
		c.violate("two servers: %d lives beside %d", pid, next)
	}
}

func (c *controller) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// tell adds a line to the story.
func (c *controller) tell(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.story = append(c.story, fmt.Sprintf("%6.3f ", time.Since(c.began).Seconds())+fmt.Sprintf(format, args...))
}

// arm replaces the faults that are to come.
func (c *controller) arm(all ...*injection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = all
}

// killed notes servers that the matrix has killed.
func (c *controller) killed(pids []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if slices.Contains(pids, s.pid) {
			s.over = true
		}
	}
}

// await waits until look finds something in what has arrived, or done is closed, or
// the time is over.
func (c *controller) await(within time.Duration, done <-chan struct{}, look func() bool) bool {
	over := time.After(within)
	for {
		c.mu.Lock()
		found, changed := look(), c.changed
		c.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-done:
			return false
		case <-over:
			return false
		}
	}
}

// at gives the server that had the lock at that time; its zero value when none had.
func (c *controller) at(when int64) (found served) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.at <= when {
			found = *s
		}
	}
	return found
}
