package supervisor

import (
	"fmt"
	"time"

	"intermission/platform"
)

// Manager is the service manager that keeps the supervisor, as *platform.ServiceManager
// has it: none of its methods waits for long.
type Manager interface {
	Ready()                      // the start is over
	Alive()                      // the loop isn't stuck
	Starting(d time.Duration)    // the start may take until d from now
	Stopping(d time.Duration)    // we end, within d
	Status(line string)          // what we do, in a line
	Restarts() bool              // it starts us again when we end with platform.HandedOverStatus
	Watchdog() (d time.Duration) // how often Alive must be called; 0 when it need not be
}

const (
	// leaveLimit bounds the stop of a server when the supervisor is to end: with what
	// comes after it, it stays below platform.ServiceStopLimit.
	leaveLimit = 75 * time.Second
	// leaveRest is what is left to the end of tools, to the park and to calls in flight after that.
	leaveRest = platform.ServiceStopLimit - leaveLimit - 2*time.Second
	// startTick is how often a manager is told that the first launch goes on, and
	// startMore how long it may take from then. Managers wait for 30 s at least.
	startTick = 10 * time.Second
	startMore = 3 * startTick
)

// keep takes the manager that the options name; none is as good as one that doesn't listen.
func (s *supervisor) keep() {
	m, ours := s.Manager.(*platform.ServiceManager)
	s.kept = s.Manager != nil && (!ours || m != nil)
	if !s.kept {
		s.Manager = (*platform.ServiceManager)(nil)
	}
}

// stopLimit is how long a stop of the server may take.
func (s *supervisor) stopLimit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept || s.state.Leaving {
		return min(s.Config.Server.StopTimeout, leaveLimit)
	}
	return s.Config.Server.StopTimeout
}

// launched says that the first launch has come to its end, whatever that is. Only the loop calls it.
func (s *supervisor) launched() bool { return s.state.Phase != Starting || s.state.Seq > 1 }

// tellStatus has the manager show what we do, at each change of it.
func (s *supervisor) tellStatus() {
	told := ""
	for {
		s.mu.Lock()
		changed, st := s.changed, s.state
		s.mu.Unlock()
		pending := 0
		if ledger, _ := s.book(); ledger != nil {
			pending, _ = s.countPending(s.life, ledger) // what can't be counted, status tells
		}
		if line := statusLine(st, pending); line != told {
			told = line
			s.Manager.Status(line)
		}
		select {
		case <-changed:
		case <-s.life.Done():
			return
		}
	}
}

// statusLine words the state for the manager's own display: "running, 2 sessions pending".
// Every user of the machine can read that, so that it names no reason: one may quote
// what the server wrote, or say where its user's files are.
func statusLine(st State, pending int) string {
	line := string(st.Phase)
	switch {
	case pending == 1:
		line += ", 1 session pending"
	case pending > 1:
		line += fmt.Sprintf(", %d sessions pending", pending)
	}
	switch st.Phase {
	case Backoff, Failed, Blocked:
		line += "; see: intermission status"
	}
	return line
}
