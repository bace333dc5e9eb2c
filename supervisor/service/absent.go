package service

import (
	"context"
	"os"
	"time"

	"intermission/platform"
)

// lookPatience bounds the look at how the service is installed, on the way to an error.
const lookPatience = 2 * time.Second

// StartAct is what a person does where no supervisor runs: it depends on whether a
// service is installed. What can't be told is told by the start of it.
func StartAct(ctx context.Context, getenv func(string) string) string {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	return startAct(os.Geteuid() == 0, func() (platform.ServiceStatus, error) {
		self, err := os.Executable()
		if err != nil {
			return platform.ServiceStatus{}, err
		}
		return platform.SupervisorService(self, "").For(getenv).Status(ctx)
	})
}

func startAct(root bool, status func() (platform.ServiceStatus, error)) string {
	if root {
		return "root has none: call this as the user whose sessions they are, without sudo"
	}
	st, err := status()
	switch {
	case err != nil:
	case st.Unreachable: // a start and an installation would be refused
		return "no systemd user manager answers here (su and sudo start none): log in by ssh or on the console; or have it run from boot on: intermission service install --linger"
	case st.Running, st.Comes: // between two supervisors, or at the first steps of one
		return "its service is starting, ending or changing over to the next; try again in a moment, or see: intermission service status"
	case !st.Installed:
		return "have one in the background: intermission service install"
	}
	return "start it with: intermission service start"
}
