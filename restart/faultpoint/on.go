//go:build faultpoints

package faultpoint

import (
	"encoding/json"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Variable names, in the environment, the controller's Unix socket. Unset: nobody is asked.
const Variable = "INTERMISSION_FAULTPOINTS"

// Arrival is what a process says at a point, as one line of JSON.
type Arrival struct {
	PID  int  `json:"pid"`
	Name Name `json:"name"`
	// Held says, at LockLetGo, for how long the lock was ours, in nanoseconds: without
	// the wait at LockTaken, and without Stalled, for which the machine gave this
	// process no time at all.
	Held    int64 `json:"held,omitempty"`
	Stalled int64 `json:"stalled,omitempty"`
}

var (
	controller = os.Getenv(Variable)
	holding    atomic.Pointer[hold] // one lock is held at a time
)

// At says that the process has come to a point, and waits for the controller's word.
func At(name Name) {
	if controller == "" {
		return
	}
	a := Arrival{PID: os.Getpid(), Name: name}
	if name == LockLetGo {
		if h := holding.Swap(nil); h != nil {
			a.Held, a.Stalled = h.end()
		}
	}
	ask(a)
	if name == LockTaken {
		holding.Store(newHold())
	}
}

// hold measures for how long a lock is held, by a pulse that a stall holds up too.
type hold struct {
	began   time.Time
	last    atomic.Int64 // beat of the pulse, since began
	stalled atomic.Int64
	over    chan struct{}
}

const pulse = 5 * time.Millisecond

func newHold() *hold {
	h := &hold{began: time.Now(), over: make(chan struct{})}
	go func() {
		tick := time.NewTicker(pulse)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.beat()
			case <-h.over:
				return
			}
		}
	}()
	return h
}

func (h *hold) beat() {
	now := int64(time.Since(h.began))
	if late := now - h.last.Swap(now) - int64(2*pulse); late > 0 {
		h.stalled.Add(late)
	}
}

func (h *hold) end() (held, stalled int64) {
	close(h.over)
	h.beat()
	stalled = h.stalled.Load()
	return int64(time.Since(h.began)) - stalled, stalled
}

// ask returns when the controller has answered, or isn't there.
func ask(a Arrival) {
	conn, err := net.Dial("unix", controller)
	if err != nil {
		return
	}
	defer conn.Close()
	if json.NewEncoder(conn).Encode(a) == nil {
		_, _ = conn.Read(make([]byte, 1)) // its word, or its end
	}
}
