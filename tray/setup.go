package tray

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

const (
	// startPatience is how long a supervisor may take to fail: then it is told why.
	startPatience = 3 * time.Second
	// commandPatience is how long one of our commands may take: they have limits of their own, which are
	// shorter, ten minutes for a start whose first launch goes on.
	commandPatience = 12 * time.Minute
)

// setUp installs the service, starts it, and has the tray start at login. next is
// what a person may still want to do.
func (a *actor) setUp(ctx context.Context) (next []string, err error) {
	// Before anything is done: who can't stand in an entry can't be installed either.
	if _, err := a.stable(ctx); err != nil {
		return nil, err
	}
	report, err := a.command(ctx, "service", "install")
	if err != nil {
		return nil, err
	}
	return report.Next, a.startAtLogin(ctx)
}

// startAtLogin has the tray start at login, by what is there at the next one, too.
func (a *actor) startAtLogin(ctx context.Context) error {
	program, err := a.stable(ctx)
	if err != nil {
		return err
	}
	return StartAtLogin(program, true)
}

// supervise starts the supervisor: the service where it is installed, for whoever
// keeps that must know of it.
func (a *actor) supervise(ctx context.Context) error {
	if st, err := a.service.Status(ctx); err == nil && st.Installed {
		_, err := a.command(ctx, "service", "start")
		return err
	}
	return a.spawn(ctx)
}

// command runs one of our own commands to its end, and gives what it reports.
func (a *actor) command(ctx context.Context, args ...string) (platform.ServiceReport, error) {
	ctx, cancel := context.WithTimeout(ctx, commandPatience)
	defer cancel()
	c, err := a.launch(append(args, "--json")...)
	if err != nil {
		return platform.ServiceReport{}, err
	}
	select {
	case exit := <-c.ended:
		said, err := c.said(exit)
		if err != nil {
			return platform.ServiceReport{}, err
		}
		return outcome(said, exit)
	case <-ctx.Done(): // it goes on
		return platform.ServiceReport{}, fmt.Errorf("intermission %s has not ended yet", strings.Join(args, " "))
	}
}

// outcome reads what a command has said: JSON, and then for people an error.
func outcome(said string, exit platform.Exit) (report platform.ServiceReport, err error) {
	var answer struct {
		platform.ServiceReport
		Error *control.Error `json:"error"`
	}
	known := json.NewDecoder(strings.NewReader(said)).Decode(&answer)
	switch {
	case known == nil && answer.Error != nil:
		return report, answer.Error
	case exit.Code != 0:
		return report, errors.New(lastLine(said, exit))
	}
	return answer.ServiceReport, nil
}

// spawn starts a supervisor that outlives us.
func (a *actor) spawn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	c, err := a.launch("run", "--quiet")
	if err != nil {
		return err
	}
	select {
	case exit := <-c.ended:
		said, err := c.said(exit)
		if err != nil {
			return err
		}
		return errors.New(lastLine(said, exit))
	case <-ctx.Done(): // it goes on
		return nil
	}
}

// launched is our own program in a process that doesn't end with us.
type launched struct {
	output string // the file in which stands what it says
	ended  <-chan platform.Exit
}

// launch starts it. What it says before it has a log of its own would be lost: a
// configuration that is wrong, another one that runs.
func (a *actor) launch(args ...string) (launched, error) {
	output, err := os.OpenFile(filepath.Join(a.paths.Log, "start.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return launched{}, fmt.Errorf("cannot write what the supervisor says: %w", err)
	}
	defer output.Close()
	child, err := platform.Start(platform.Spec{Argv: append([]string{a.self}, args...), Env: os.Environ(), Output: output})
	if err != nil {
		return launched{}, err
	}
	ended := make(chan platform.Exit, 1)
	// It reaps the process, should that end before us, and so lives as long as it or we do.
	go func() { ended <- child.Wait() }()
	return launched{output.Name(), ended}, nil
}

func (l launched) said(exit platform.Exit) (string, error) {
	said, err := os.ReadFile(l.output)
	if err != nil {
		return "", fmt.Errorf("it exited with status %d, and what it said can't be read: %w", exit.Code, err)
	}
	return string(said), nil
}

func lastLine(said string, exit platform.Exit) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if last := restart.PlainText(strings.TrimPrefix(lines[len(lines)-1], "intermission: "), 300); last != "" {
		return last
	}
	return fmt.Sprintf("it exited with status %d", exit.Code)
}
