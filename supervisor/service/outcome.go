package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// hintSettings is what a supervisor that has adopted its server can't do.
const hintSettings = "Changed [server] settings take effect when the server is next started: intermission restart"

const hintDoctor = "To look into it: intermission doctor"

// configured is an error with every fault of the configuration, with which no supervisor starts.
func (b Background) configured() error {
	_, err := supervisor.ConfigFor(b.Paths, b.getenv)
	if err != nil {
		return fmt.Errorf("its configuration can't be read; mend it and try again: %w", err)
	}
	return nil
}

// outcomePatience bounds the wait for the first outcome of a launch: of the longest
// start of a server that is usual, and of its adoption.
const outcomePatience = 90 * time.Second

// Outcome waits for what came of the supervisor's first launch: its server runs, or
// doesn't for a reason. It is nil where the supervisor answers another user only, or
// has ended before it came to that.
func (b Background) Outcome(ctx context.Context) *control.Status {
	ctx, cancel := context.WithTimeout(ctx, outcomePatience)
	defer cancel()
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	var last *control.Status
	errOutcome := errors.New("that is it")
	for ctx.Err() == nil {
		err := client.Watch(ctx, func(s control.Snapshot) error {
			last = &s.Status
			if last.Server.State != "starting" && last.Server.State != "stopping" {
				return errOutcome
			}
			return nil
		})
		if last == nil || errors.Is(err, errOutcome) {
			break
		}
		if err != nil && control.AsError(err).Code == control.CodeNoSupervisor {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // a stream that ends at once is asked for anew
		}
	}
	return last
}

// serverHints says what a person should know of the server after a start or restart.
func serverHints(st control.ServerStatus) (hints []string) {
	switch {
	case st.State == "running" && st.Adopted:
		return []string{hintSettings}
	case st.State == "running":
		return nil
	case st.State == "stopped" && st.Reason == "":
		return []string{"The server is stopped, as you have wished; to start it: intermission start"}
	}
	why := ""
	if st.Reason != "" {
		why = ": " + st.Reason
	}
	return []string{"The server is not running (" + st.State + ")" + why, hintDoctor}
}

// tellServer adds to a report what came of the launch.
func (b Background) tellServer(ctx context.Context, report *platform.ServiceReport) {
	st := b.Outcome(ctx)
	if st == nil {
		return
	}
	if st.Server.State == "running" {
		report.Done = append(report.Done, fmt.Sprintf("The server is running, opencode %s.", st.Server.Version))
	}
	report.Next = append(serverHints(st.Server), report.Next...)
}

// After is the status that answers an act on the service. What it did to the server is
// told, and doesn't make the act a failure: the service does as it was told.
func (b Background) After(ctx context.Context, act string, suspended int) (Status, error) {
	var hints []string
	if act != "stop" {
		if st := b.Outcome(ctx); st != nil {
			hints = serverHints(st.Server)
		}
	}
	st, err := b.Status(ctx)
	if act == "stop" {
		st.Suspended = suspended
	}
	st.Next = hints
	return st, err
}

// kept names what stays after a purge.
func (b Background) kept() string {
	var there []string
	for _, path := range []string{b.Paths.ConfigFile, b.keptFile()} {
		if _, err := os.Lstat(path); err == nil {
			there = append(there, path)
		}
	}
	switch len(there) {
	case 0:
		return "nothing of yours was kept."
	case 1:
		return there[0] + " is yours, and stays."
	}
	return strings.Join(there, " and ") + " are yours, and stay."
}

func sessions(n int) string {
	if n == 1 {
		return "1 session that was at work"
	}
	return fmt.Sprintf("%d sessions that were at work", n)
}
