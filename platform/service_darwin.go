package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// launchPoll is how often launchd is asked whether a job has ended: nothing tells.
const launchPoll = 100 * time.Millisecond

// launchctl runs launchd's tool. What it says stands in the error, which is
// context.DeadlineExceeded where it doesn't answer.
func launchctl(ctx context.Context, args ...string) (string, error) {
	limit := launchctlLimit(args[0])
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(within, "/bin/launchctl", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return string(out), nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case within.Err() != nil:
		err = fmt.Errorf("launchd has not answered in %s: %w", limit, within.Err())
	}
	return string(out), fmt.Errorf("launchctl %s: %w: %s", args[0], err, bytes.TrimSpace(out))
}

// launchctlLimit is how long launchd's tool is waited for, by what it is to do: it
// may wait for the end of a job that it unloads.
func launchctlLimit(verb string) time.Duration {
	switch verb {
	case "bootout":
		return ServiceStopLimit
	case "bootstrap":
		return 30 * time.Second
	}
	return 10 * time.Second
}

// job asks launchd for our job. It fails only where launchd doesn't answer: a job that
// it doesn't know isn't loaded.
func (s Service) job(ctx context.Context) (loaded bool, state string, pid int, err error) {
	out, err := launchctl(ctx, "print", s.launchTarget())
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return false, "", 0, err
	}
	state, pid = launchctlState(out)
	return err == nil, state, pid, nil
}

// launchDomain is where the agents of the user's graphical session are.
func launchDomain() string { return "gui/" + strconv.Itoa(os.Getuid()) }

func (s Service) launchTarget() string { return launchDomain() + "/" + s.launchAgentLabel() }

func (s Service) agentFile() (string, error) { return Autostart{Name: s.Name}.agentFile() }

// agent is what stands in our file, and what should: nil when there is no file.
func (s Service) agent() (path string, have, want []byte, err error) {
	if path, err = s.agentFile(); err != nil {
		return "", nil, nil, err
	}
	if have, err = readSmall(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil, err
	}
	paths, err := s.paths()
	if err != nil {
		return "", nil, nil, err
	}
	return path, have, s.launchAgent(filepath.Join(paths.Log, "launchd.log")), nil
}

// paths are those that the service will find: our own variables come from its definition.
func (s Service) paths() (Paths, error) {
	return FindPaths(func(name string) string {
		if v, ok := s.Env[name]; ok {
			return v
		}
		if name == "HOME" {
			return os.Getenv(name)
		}
		return ""
	})
}

func (s Service) install(ctx context.Context, o ServiceOptions) (ServiceReport, error) {
	report := ServiceReport{Kind: LaunchdAgent, Done: []string{}, Next: []string{}}
	if o.Kind != "" && o.Kind != LaunchdAgent {
		return report, fmt.Errorf("cannot install a %s on macOS: it has launchd agents", o.Kind)
	}
	if os.Getuid() == 0 {
		return report, errors.New("cannot install the service for root: run this as the user whose sessions they are, without sudo")
	}
	err := Autostart{Name: s.Name, Title: s.Title, Comment: s.Comment, Argv: s.Argv}.check()
	if err != nil {
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	path, have, want, err := s.agent()
	if err != nil {
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	if bytes.Equal(have, want) {
		report.Done = append(report.Done, "The launchd agent "+path+" is installed and current.")
	} else if err := s.writeAgent(path, want); err != nil {
		return report, fmt.Errorf("cannot install the service: %w", err)
	} else {
		report.Done = append(report.Done, "Wrote the launchd agent "+path+": launchd starts the supervisor when you log in.")
	}
	// What was switched off by launchctl stays so over a new file.
	if _, err := launchctl(ctx, "enable", s.launchTarget()); err != nil {
		if undo := restoreFile(path, have); undo != nil {
			err = errors.Join(err, undo)
		}
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	loaded, _, _, err := s.job(ctx)
	switch {
	case err != nil || !loaded:
		report.Next = append(report.Next, HintStart)
	case !sameLaunchAgent(have, want): // a handover is answered by launchd, from what it has loaded
		report.Next = append(report.Next, "launchd takes the changed definition at your next login, at the latest; at once, with a stop of the server: intermission service stop, then intermission service start")
	}
	return report, nil
}

func (s Service) writeAgent(path string, data []byte) error {
	paths, err := s.paths()
	if err == nil {
		err = EnsurePrivateDir(paths.Log) // launchd makes the file in it, not the directory
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err != nil {
		return err
	}
	return WriteFileAtomic(path, data)
}

// restoreFile puts back what stood there; nil is nothing.
func restoreFile(path string, data []byte) error {
	if data == nil {
		return os.Remove(path)
	}
	return WriteFileAtomic(path, data)
}

func (s Service) uninstall(ctx context.Context) (ServiceReport, error) {
	report := ServiceReport{Kind: LaunchdAgent, Done: []string{}, Next: []string{}}
	path, err := s.agentFile()
	if err != nil {
		return report, err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if loaded, _, _, err := s.job(ctx); err != nil {
			return report, fmt.Errorf("cannot tell whether the service is installed: %w", err)
		} else if !loaded {
			return report, ErrNotInstalled
		}
	}
	if err := s.stop(ctx); err != nil && !errors.Is(err, ErrNotInstalled) {
		return report, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return report, fmt.Errorf("cannot remove the service: %w", err)
	}
	report.Done = append(report.Done, "Stopped the supervisor, and removed the launchd agent "+path+".")
	return report, nil
}

// start loads the agent, which starts it. An agent that is loaded and doesn't run
// has ended by itself: it is loaded anew, so that it is what the file says.
func (s Service) start(ctx context.Context) error {
	path, err := s.agentFile()
	if err != nil {
		return err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return ErrNotInstalled
	}
	loaded, _, pid, err := s.job(ctx)
	if err == nil && pid != 0 {
		return nil
	}
	if err == nil && loaded {
		err = s.unload(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot start the service: %w", err)
	}
	if _, err := launchctl(ctx, "bootstrap", launchDomain(), path); err != nil {
		if _, gui := launchctl(ctx, "print", launchDomain()); gui != nil {
			return fmt.Errorf("cannot start the service: nobody is logged in at the screen of this Mac, which launchd's agents need; log in there, or run: intermission run: %w", err)
		}
		return fmt.Errorf("cannot start the service: %w", err)
	}
	return s.untilAgent(ctx, "started", func(loaded bool, pid int) bool { return loaded && pid != 0 })
}

// stop unloads the agent: launchd sends it SIGTERM, alone, and kills it after
// ExitTimeOut. At the next login it is loaded again.
func (s Service) stop(ctx context.Context) error {
	path, err := s.agentFile()
	if err != nil {
		return err
	}
	loaded, _, _, err := s.job(ctx)
	if err == nil && !loaded {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return ErrNotInstalled
		}
		return nil // it isn't loaded, so it doesn't run
	}
	if err == nil {
		err = s.unload(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot stop the service: %w", err)
	}
	return nil
}

func (s Service) unload(ctx context.Context) error {
	_, err := launchctl(ctx, "bootout", s.launchTarget())
	// It may say that it is at it still (36, EINPROGRESS): what counts is that the job goes.
	if gone := s.untilAgent(ctx, "ended", func(loaded bool, _ int) bool { return !loaded }); gone != nil {
		return errors.Join(gone, err)
	}
	return nil
}

// untilAgent waits until launchd says of our job what is wanted.
func (s Service) untilAgent(ctx context.Context, what string, is func(loaded bool, pid int) bool) error {
	ctx, cancel := context.WithTimeout(ctx, ServiceStopLimit+launchThrottle*time.Second)
	defer cancel()
	tick := time.NewTicker(launchPoll)
	defer tick.Stop()
	for {
		loaded, state, pid, err := s.job(ctx)
		if err == nil && is(loaded, pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("launchd's job %s has not %s (%s): %w", s.launchAgentLabel(), what, state, ctx.Err())
		case <-tick.C:
		}
	}
}

func (s Service) status(ctx context.Context) (ServiceStatus, error) {
	path, have, want, err := s.agent()
	if err != nil {
		return ServiceStatus{}, fmt.Errorf("cannot tell how the service is installed: %w", err)
	}
	var st ServiceStatus
	if have != nil {
		st = ServiceStatus{
			Installed: true, Kind: LaunchdAgent, Definition: path,
			Program: launchAgentProgram(have), Version: launchAgentVersion(have), Current: sameLaunchAgent(have, want),
		}
		// A system that can't say has nothing switched off.
		off, _ := launchctl(ctx, "print-disabled", launchDomain())
		st.Enabled = !launchAgentDisabled(have) && !launchctlDisabled(off, s.launchAgentLabel())
	}
	if _, st.State, st.PID, err = s.job(ctx); err != nil {
		return st, fmt.Errorf("cannot ask launchd: %w", err)
	}
	st.Running = st.PID != 0
	if st.State = strings.TrimSpace(st.State); st.State == "" {
		st.State = "not loaded"
	}
	return st, nil
}

// ServiceOutputLost says that what a service prints is of no use: launchd appends it to a file without end.
const ServiceOutputLost = true

// Removable says why a service of this kind can't be taken away by who asks; here
// nothing keeps them from it.
func Removable(ServiceKind) error { return nil }
