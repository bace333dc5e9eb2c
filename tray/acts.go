package tray

import (
	"context"
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

// actor carries out what was clicked.
type actor struct {
	paths   platform.Paths
	self    string // this program
	service background
}

// background is the supervisor as the system's service: platform.Service.
type background interface {
	Install(context.Context, platform.ServiceOptions) (platform.ServiceReport, error)
	Start(context.Context) error
	Status(context.Context) (platform.ServiceStatus, error)
}

// do carries out an act, and tells what came of it.
func (a *actor) do(ctx context.Context, act Action) Done {
	done := Done{Action: act}
	client := control.Dial(a.paths.LiveSocket())
	defer client.Close()
	var err error
	switch act.Verb {
	case Resume:
		var r control.Result
		if r, err = client.Resume(ctx, act.Session, act.At); err == nil {
			done.Outcome, done.Reason = r.Outcome, r.Reason
			return done
		}
	case Dismiss:
		_, err = client.Dismiss(ctx, act.Session, act.At)
	case Interrupt:
		_, err = client.Interrupt(ctx, act.Session, act.At)
	case StartServer:
		_, err = client.StartServer(ctx)
	case StopServer:
		_, err = client.StopServer(ctx)
	case RestartServer:
		_, err = client.RestartServer(ctx)
	case CopyID:
		err = platform.CopyText(act.Session)
	case Open:
		err = platform.OpenTerminal([]string{a.self, "open", act.Session}, "")
	case OpenLog:
		err = a.openLog(act.Shown == "running")
	case LoginOn, LoginOff:
		err = StartAtLogin(a.self, act.Verb == LoginOn)
	case SetUp:
		if _, err = a.service.Install(ctx, platform.ServiceOptions{}); err == nil {
			err = StartAtLogin(a.self, true)
		}
		if err == nil {
			err = a.service.Start(ctx)
		}
	case StartSupervisor:
		err = a.supervise(ctx)
	}
	if err != nil {
		done.Reason = err.Error()
		if control.AsError(err).Code == control.CodeUnknown {
			done.Outcome = "unknown"
		}
	}
	return done
}

// show shows what a notification told of.
func (a *actor) show(of kind) error {
	command := "pending"
	if of != kindPending {
		command = "status"
	}
	return platform.OpenTerminal(platform.ThenShell([]string{a.self, command}), "")
}

// openLog opens the server's output, or, while there is no server, what the
// supervisor says about that.
func (a *actor) openLog(running bool) error {
	names := []string{"intermission.log", "server.log", "tray.log"}
	if running {
		names[0], names[1] = names[1], names[0]
	}
	for _, name := range names {
		path := filepath.Join(a.paths.Log, name)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return platform.OpenFile(path)
		}
	}
	return fmt.Errorf("there is no log in %s yet", a.paths.Log)
}

// startPatience is how long a supervisor may take to fail: then it is told why.
const startPatience = 3 * time.Second

// supervise starts the supervisor: the service where it is installed, for whoever
// keeps that must know of it.
func (a *actor) supervise(ctx context.Context) error {
	if st, err := a.service.Status(ctx); err == nil && st.Installed {
		return a.service.Start(ctx)
	}
	return a.spawn(ctx)
}

// spawn starts a supervisor that outlives us.
func (a *actor) spawn(ctx context.Context) error {
	// What it says before its own log is open: a configuration that is wrong, another one that runs.
	path := filepath.Join(a.paths.Log, "start.log")
	output, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write what the supervisor says: %w", err)
	}
	defer output.Close()
	child, err := platform.Start(platform.Spec{Argv: []string{a.self, "run", "--quiet"}, Env: os.Environ(), Output: output})
	if err != nil {
		return err
	}
	ended := make(chan platform.Exit, 1)
	// It reaps the supervisor, should that end before us, and so lives as long as it or we do.
	go func() { ended <- child.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case exit := <-ended:
		said, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("it exited with status %d, and what it said can't be read: %w", exit.Code, err)
		}
		return errors.New(lastLine(string(said), exit))
	case <-ctx.Done(): // it goes on
		return nil
	}
}

func lastLine(said string, exit platform.Exit) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if last := restart.PlainText(strings.TrimPrefix(lines[len(lines)-1], "intermission: "), 300); last != "" {
		return last
	}
	return fmt.Sprintf("it exited with status %d", exit.Code)
}
