package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Spec is a program to start.
type Spec struct {
	Argv   []string // Argv[0] is an absolute path
	Env    []string // the whole environment, KEY=VALUE; nothing is added to it
	Dir    string   // working directory; "" is ours
	Output *os.File // standard output and error; nil discards them
}

// Exit is how a process ended.
type Exit struct {
	Code   int    // exit status; -1 when it was ended by a signal
	Signal string // "SIGKILL"; "" when it exited
}

// Child is a process that Start started.
type Child struct {
	id   Identity
	wait func() Exit
}

// Start starts a program so that it can outlive us: in a session of its own
// (Windows: a process group and a job of its own, no console window), with no
// input, and with no descriptors of ours but the output. Signals to our terminal
// or group don't reach it. The caller must call Wait.
func Start(s Spec) (*Child, error) {
	if len(s.Argv) == 0 || !filepath.IsAbs(s.Argv[0]) {
		return nil, fmt.Errorf("cannot start %q: the program's path must be absolute", s.Argv)
	}
	cmd := &exec.Cmd{Path: s.Argv[0], Args: s.Argv, Dir: s.Dir, Env: s.Env}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would mean our own
	}
	if s.Output != nil { // a nil *os.File in the interface would not be nil
		cmd.Stdout, cmd.Stderr = s.Output, s.Output
	}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", s.Argv[0], err)
	}
	// It is not reaped yet, so that its pid is its own even if it has ended by now.
	id, _, err := identify(cmd.Process.Pid)
	if err == nil {
		err = contain(id)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("cannot start %s: %w", s.Argv[0], err)
	}
	return &Child{id: id, wait: sync.OnceValue(func() Exit { return waitFor(cmd) })}, nil
}

func waitFor(cmd *exec.Cmd) Exit {
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return Exit{Code: -1} // somebody else reaped it: how it ended can't be known
	}
	return Exit{Code: cmd.ProcessState.ExitCode(), Signal: endSignal(cmd.ProcessState)}
}

// Identity names the process.
func (c *Child) Identity() Identity { return c.id }

// Wait waits until the process has ended, and reaps it. Its own children may go on.
// Further calls give the same Exit.
func (c *Child) Wait() Exit { return c.wait() }
