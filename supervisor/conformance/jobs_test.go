//go:build linux

package conformance

import (
	"fmt"
	"syscall"
	"testing"
)

// TestBackgroundJobs stops a claims server whose sessions are idle, but have a subagent
// and a command in the background: neither acts at the next start.
func TestBackgroundJobs(t *testing.T) {
	t.Parallel()
	u := newUser(t, newClaims)
	before := u.up(t)
	a := u.client(t)
	command := toolCommand()
	agents := idleWithJob(t, u, a, "agents", "[[background "+u.slow(900, 100)+"]]")
	shells := idleWithJob(t, u, a, "shells", "[[bgshell "+command+"]]")
	eventually(t, "the command in the background", func() error {
		if len(u.running(command)) == 0 {
			return fmt.Errorf("%q doesn't run", command)
		}
		return nil
	})
	requests := u.requests(t)

	u.supervisor.end(t, syscall.SIGKILL)
	kill(t, before.Server.PID)
	u.up(t)
	for i, p := range u.wantPending(t, agents, shells) {
		if want := []string{"subagent", "shell"}[i]; len(p.Jobs) != 1 || p.Jobs[0].Kind != want {
			t.Errorf("the jobs of %s are shown as %+v, not as one %s", p.ID, p.Jobs, want)
		}
	}
	u.quiet(t, requests)
	if pids := u.running(command); len(pids) > 0 {
		t.Errorf("the command in the background runs: %v", pids)
	}
}

// idleWithJob makes a session that starts a job in the background and is idle then.
func idleWithJob(t *testing.T, u *user, a api, name, directive string) work {
	t.Helper()
	w := work{directory: u.project(t, name), marker: "marker-" + name}
	id, err := u.create(a, w.directory)
	if err != nil {
		t.Fatal(err)
	}
	w.id = id
	if err := u.prompt(a, id, w.marker+" "+directive, ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the prompt of "+name, func() error {
		if !u.asked(t, w) {
			return fmt.Errorf("it has not reached the model")
		}
		return nil
	})
	u.idle(t, a, w)
	return w
}
