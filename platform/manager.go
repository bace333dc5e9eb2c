package platform

import (
	"context"
	"time"
)

// ServiceManager is told how we do by the process that it has started. Where none
// has started us, or none listens, each of its methods does nothing.
type ServiceManager struct {
	restarts bool          // it starts us again when we end with HandedOverStatus
	watchdog time.Duration // within which it wants to hear Alive; 0: it doesn't
	tell     func(state string, d time.Duration)
}

// Restarts tells whether the manager starts us again when we end with HandedOverStatus.
func (m *ServiceManager) Restarts() bool { return m != nil && m.restarts }

// NotOurs takes back Restarts: the definition is somebody else's, and may do otherwise.
func (m *ServiceManager) NotOurs() {
	if m != nil {
		m.restarts = false
	}
}

// Watchdog is how often Alive must be called, at most; 0 when it need not be.
func (m *ServiceManager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog / 2
}

// What a manager is told.
const (
	managerReady    = "ready"
	managerAlive    = "alive"
	managerStarting = "starting"
	managerStopping = "stopping"
	managerStatus   = "status "
)

func (m *ServiceManager) say(state string, d time.Duration) {
	if m != nil && m.tell != nil {
		m.tell(state, d)
	}
}

// Ready says that the start is over.
func (m *ServiceManager) Ready() { m.say(managerReady, 0) }

// Alive says that we are not stuck.
func (m *ServiceManager) Alive() { m.say(managerAlive, 0) }

// Starting says that the start may take until d from now.
func (m *ServiceManager) Starting(d time.Duration) { m.say(managerStarting, d) }

// Stopping says that we end, within d.
func (m *ServiceManager) Stopping(d time.Duration) { m.say(managerStopping, d) }

// Status says in a line what we do, for the manager's own status display.
func (m *ServiceManager) Status(line string) { m.say(managerStatus+line, 0) }

// UnderManager calls run as the service manager that has started this process wants
// it done, and returns its error. The context that run gets ends when the manager
// says so. The variables by which the manager is known are removed from our environment.
func UnderManager(ctx context.Context, name string, run func(context.Context, *ServiceManager) error) error {
	return underManager(ctx, name, run)
}
