package platform

import "errors"

// ErrNoProcess says that no such process runs: none has the pid, or one that is
// another than was meant, or it has ended and only waits to be reaped.
var ErrNoProcess = errors.New("no such process")

// Identity names one process, for good: pids are used again, and after a reboot
// all of them are. Values are compared with ==.
type Identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // start time as the system counts it, opaque
	Boot  string `json:"boot"`  // which boot of the machine
}

// Sig is what can be asked of a process.
type Sig int

// The signals. On Windows Terminate is CTRL_BREAK to a process that was started
// as a group of its own (Start does), and Kill is TerminateProcess.
const (
	Terminate Sig = iota + 1
	Kill
)

// Identify gives the identity of the process that has the pid now. It returns
// ErrNoProcess when none has, or when it has ended (a zombie).
func Identify(pid int) (Identity, error) {
	id, ended, err := identify(pid)
	if err != nil {
		return Identity{}, err
	}
	if ended {
		return Identity{}, ErrNoProcess
	}
	return id, nil
}

// Alive tells whether this very process still runs.
func (i Identity) Alive() bool {
	now, err := Identify(i.PID)
	return err == nil && now == i
}
