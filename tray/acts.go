package tray

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"intermission/platform"
	"intermission/supervisor/control"
)

// actor carries out what was clicked.
type actor struct {
	paths   platform.Paths
	self    string // this program
	service background
	stable  func(context.Context) (string, error) // self, by the path that stays when its version changes
}

func newActor(c Config) actor {
	return actor{
		paths: c.Paths, self: c.Self, service: platform.SupervisorService(c.Self, c.Version).For(os.Getenv),
		stable: func(ctx context.Context) (string, error) {
			program, _, err := platform.StableProgram(ctx, c.Self, os.Getenv, "version")
			return program, err
		},
	}
}

// background is the supervisor as the system's service: platform.Service. It is set
// up and started by our own commands alone, so that there is one way to do it.
type background interface {
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
	case LoginOn:
		err = a.startAtLogin(ctx)
	case LoginOff:
		err = StartAtLogin(a.self, false)
	case SetUp:
		var next []string
		if next, err = a.setUp(ctx); err == nil && len(next) > 0 {
			done.Outcome, done.Reason = "set up", strings.Join(next, " ")
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
