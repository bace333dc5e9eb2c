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
	PID  int   `json:"pid"`
	Name Name  `json:"name"`
	Held int64 `json:"held,omitempty"` // LockLetGo: for how long the lock was ours, in nanoseconds, without the wait at LockTaken
}

var (
	controller = os.Getenv(Variable)
	began      = time.Now()
	taken      atomic.Int64 // when the wait at LockTaken was over; one lock is held at a time
)

// At says that the process has come to a point, and waits for the controller's word.
func At(name Name) {
	if controller == "" {
		return
	}
	a := Arrival{PID: os.Getpid(), Name: name}
	if name == LockLetGo {
		a.Held = int64(time.Since(began)) - taken.Load()
	}
	ask(a)
	if name == LockTaken {
		taken.Store(int64(time.Since(began)))
	}
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
