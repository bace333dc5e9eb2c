// Package service has the acts on the background service in which the supervisor
// that runs has a part: it leaves its server to the one that is installed, or is
// told to end where the system could only kill it. What differs by system is
// platform.Service.
package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// Background is the service, and how to reach the supervisor of this user.
type Background struct {
	platform.Service
	Paths platform.Paths

	note  string // what a person should know of the program's path
	unfit error  // why the program can't be installed

	getenv func(string) string
	keeper keeper // for tests; nil is Service
}

// keeper is what the system does for a service.
type keeper interface {
	Install(ctx context.Context, o platform.ServiceOptions) (platform.ServiceReport, error)
	Uninstall(ctx context.Context) (platform.ServiceReport, error)
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Status(ctx context.Context) (platform.ServiceStatus, error)
}

func (b Background) system() keeper {
	if b.keeper != nil {
		return b.keeper
	}
	return b.Service
}

// Find gives the service of whoever has this environment, for the program self, of
// this version.
func Find(ctx context.Context, self, version string, getenv func(string) string) (Background, error) {
	paths, err := platform.FindPaths(getenv)
	if err != nil {
		return Background{}, err
	}
	b := Background{Paths: paths, getenv: getenv}
	program, note, err := platform.StableProgram(ctx, self, getenv, "version")
	if err != nil {
		program, b.unfit = self, err
	}
	b.Service, b.note = platform.SupervisorService(program, version).For(getenv), note
	return b, nil
}

// Options is what a person chooses at the installation.
type Options struct {
	platform.ServiceOptions
	NoStart bool // define it only
}

// Status is what the system knows of the service, and which supervisor answers.
type Status struct {
	platform.ServiceStatus
	Supervisor *control.SupervisorStatus `json:"supervisor"` // null when none runs
	Server     string                    `json:"server"`     // its state; "" when no supervisor runs
	Reason     string                    `json:"reason"`     // why its server doesn't run, or why the service has failed; with an act
	Suspended  int                       `json:"suspended"`  // by the stop that this answers: how many sessions were at work
	Next       []string                  `json:"next,omitempty"`
}

// appearance is how long a supervisor may take until it answers, where the service
// manager doesn't tell when it is ready.
const appearance = 15 * time.Second

// Install defines the service and starts it. A supervisor that runs already, by hand
// or of another version, leaves its server to the one that is started.
func (b Background) Install(ctx context.Context, o Options) (platform.ServiceReport, error) {
	if b.unfit != nil {
		return platform.ServiceReport{}, fmt.Errorf("cannot install the service: %w", b.unfit)
	}
	if !o.NoStart && o.Kind != platform.SystemdSystem && o.User == "" {
		if err := b.configured(); err != nil {
			return platform.ServiceReport{}, fmt.Errorf("cannot install the service: %w", err)
		}
	}
	before, unknown := b.system().Status(ctx) // what can't be told is installed anew
	report, err := b.system().Install(ctx, o.ServiceOptions)
	if err != nil {
		return report, err
	}
	kept := false
	undo := func(failed error) error {
		if before.Installed || unknown != nil { // it would take away more than came now
			return failed
		}
		return b.undo(ctx, failed, o.Linger && !before.Lingering, kept)
	}
	if report.Kind != platform.SystemdSystem { // whose user has an environment of his own
		kept = b.keepProxies(ctx, &report)
	}
	if b.note != "" {
		report.Next = append(report.Next, b.note)
	}
	if o.NoStart || report.Kind == platform.SystemdSystem && before.Running { // not ours to ask for a handover
		return report, nil
	}
	report.Next = slices.DeleteFunc(report.Next, func(hint string) bool {
		return hint == platform.HintStart || hint == platform.HintRestart
	})
	was := before
	if was.Unreachable { // the manager that came meanwhile may have started it
		was, _ = b.system().Status(ctx)
	}
	running, err := b.running(ctx)
	switch {
	case err != nil:
		return report, undo(err)
	case running != nil && was.Current && was.Running && (was.PID == running.PID || was.PID == 0) && running.Version == b.Version:
		report.Done = append(report.Done, fmt.Sprintf("It runs already, as process %d.", running.PID))
		b.tellServer(ctx, &report)
		return report, nil
	}
	if err := b.Restart(ctx); err != nil {
		return report, undo(err)
	}
	b.tellServer(ctx, &report)
	if running != nil {
		report.Done = append(report.Done, "The supervisor that ran before has left its server to it; no session was cut off.")
	} else {
		report.Done = append(report.Done, "It was started.")
	}
	return report, nil
}

// undo takes back an installation that nothing came of, where none was before. What it
// leaves, it names.
func (b Background) undo(ctx context.Context, failed error, lingers, kept bool) error {
	if _, err := b.system().Uninstall(ctx); err != nil && !errors.Is(err, platform.ErrNotInstalled) {
		return fmt.Errorf("%w; what was installed could not be taken back: %w", failed, err)
	}
	stays := ""
	if lingers {
		stays += "; lingering stays on, to switch it off: loginctl disable-linger"
	}
	if kept {
		stays += "; the proxies stay in " + b.keptFile()
	}
	return fmt.Errorf("%w; no service was installed%s", failed, stays)
}

// keptFile has the variables that are kept for the server.
func (b Background) keptFile() string {
	return filepath.Join(filepath.Dir(b.Paths.ConfigFile), "environment")
}

// keepProxies keeps what this shell knows of proxies, and the login shell doesn't. It
// tells whether there is any.
func (b Background) keepProxies(ctx context.Context, report *platform.ServiceReport) bool {
	kept, err := supervisor.KeepProxies(ctx, b.Paths, os.Environ())
	switch {
	case err != nil:
		report.Next = append(report.Next, fmt.Sprintf("The proxies of this shell are not kept for the server (%v); set them in %s, as [server] environment.", err, b.Paths.ConfigFile))
	case len(kept) > 0:
		report.Done = append(report.Done, fmt.Sprintf("Kept for the server, since your login shell doesn't set it: %s (in %s).", strings.Join(kept, ", "), b.keptFile()))
		if b.serverLacks(ctx, kept) {
			report.Next = append(report.Next, "The server that runs was started without them; to start it again with them (sessions at work then wait for consent): intermission restart")
		}
	}
	return len(kept) > 0
}

// serverLacks tells whether a server runs that was started without these variables of
// this shell, as far as can be told.
func (b Background) serverLacks(ctx context.Context, names []string) bool {
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil || st.Server.State != "running" || st.Server.PID <= 1 {
		return false
	}
	environ, err := platform.ProcessEnvironment(st.Server.PID)
	if err != nil || len(environ) == 0 {
		return true // another system: it is said once too often
	}
	return slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(environ, name+"="+os.Getenv(name)) })
}

// Restart replaces the supervisor, and starts the service when none runs: the server
// goes on, and the next supervisor adopts it. One of another user, which only root can
// restart, is stopped with its server and started.
func (b Background) Restart(ctx context.Context) error {
	running, err := b.running(ctx)
	if err != nil {
		return err
	}
	if running == nil {
		st, err := b.system().Status(ctx)
		anothers := st.Kind == platform.SystemdSystem && os.Geteuid() == 0
		if err == nil && st.Running && anothers {
			if err := b.Stop(ctx); err != nil {
				return err
			}
		}
		if err := b.Start(ctx); err != nil || !st.Running || anothers {
			return err
		}
		// It was on its way, and had a server perhaps: only now it can be asked.
		if running, err = b.running(ctx); err != nil {
			return err
		}
		if running == nil {
			return fmt.Errorf("the supervisor (pid %d) runs and doesn't answer; it can be replaced only with a stop of its server: intermission service stop, then intermission service start", st.PID)
		}
	}
	// It stays, where the next one could not come.
	if st, err := b.system().Status(ctx); err == nil && !st.Installed {
		return platform.ErrNotInstalled
	}
	if err := b.configured(); err != nil {
		return fmt.Errorf("the supervisor (pid %d) is not replaced: %w", running.PID, err)
	}
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	if _, err := client.HandOver(ctx); err != nil {
		return fmt.Errorf("the supervisor (pid %d) doesn't make room for the next: %w", running.PID, err)
	}
	if err := b.Start(ctx); err != nil {
		if pid, alive := supervisor.LivingServer(b.Paths); alive {
			return fmt.Errorf("%w; the supervisor that ran has made room, and its server (pid %d) works on with nobody to suspend what is at work when it ends; to have it supervised: intermission run", err, pid)
		}
		return err
	}
	return nil
}

// Start starts the service, and waits until its supervisor answers.
func (b Background) Start(ctx context.Context) error {
	if before, err := b.system().Status(ctx); err == nil && before.Installed && before.Kind != platform.SystemdSystem {
		// One that fails at each start is now and then running, as its manager has it.
		if running, err := b.running(ctx); err == nil && running == nil {
			if err := b.configured(); err != nil {
				return fmt.Errorf("cannot start the service: %w", err)
			}
		}
	}
	if err := b.system().Start(ctx); err != nil {
		return err
	}
	st, err := b.system().Status(ctx)
	if err != nil {
		return err
	}
	switch st.Kind {
	case platform.SystemdUser, platform.SystemdSystem, platform.WindowsService:
		return nil // it is ready, as it has told its manager
	}
	ctx, cancel := context.WithTimeout(ctx, appearance)
	defer cancel()
	for {
		switch running, err := b.running(ctx); {
		case err == nil && running != nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the service was started, and its supervisor doesn't answer; look into %s", b.Paths.Log)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// AtWork is how many sessions a stop would suspend; 0 also where no supervisor answers.
func (b Background) AtWork(ctx context.Context) int {
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	st, _ := client.Status(ctx)
	return len(st.Sessions.Active)
}

// mayStop asks the supervisor whether its end would leave something unfinished to
// whoever starts a server next. Where none answers there is nobody to be kept.
func (b Background) mayStop(ctx context.Context) error {
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	if err := client.MayLeave(ctx); err != nil && control.AsError(err).Code == control.CodeRefused {
		return err
	}
	return nil
}

// Stop ends the supervisor, which stops its server before: what is at work is
// suspended. A server that was left without a supervisor is stopped all the same.
func (b Background) Stop(ctx context.Context) error {
	if err := b.mayStop(ctx); err != nil {
		return err
	}
	logged := b.logged()
	err := b.system().Stop(ctx)
	if errors.Is(err, platform.ErrStopByControl) {
		client := control.Dial(b.Paths.LiveSocket())
		defer client.Close()
		_, err = client.Leave(ctx)
	}
	if err != nil {
		return err
	}
	if err := b.endLeft(ctx); err != nil {
		return err
	}
	if st, err := b.system().Status(ctx); err == nil && strings.Contains(st.Failure, supervisor.ErrUnfinished.Error()) {
		return fmt.Errorf("the service is stopped, but %s", st.Failure)
	}
	if err := logged.unfinished(); err != nil {
		return fmt.Errorf("the service is stopped, but %w", err)
	}
	return nil
}

// Uninstall stops the service and takes it away. What waits for consent is kept,
// unless purge says that our files are to go too; the configuration is the user's,
// and stays in any case.
func (b Background) Uninstall(ctx context.Context, purge bool) (platform.ServiceReport, error) {
	if st, err := b.system().Status(ctx); err == nil && st.Kind == platform.SystemdSystem {
		if purge {
			return platform.ServiceReport{}, &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("the ledger is %s's; uninstall without --purge, and then as %s: intermission service uninstall --purge", st.User, st.User)}
		}
		return b.system().Uninstall(ctx)
	}
	if st, err := b.system().Status(ctx); err == nil {
		if err := platform.Removable(st.Kind); err != nil {
			return platform.ServiceReport{}, err
		}
	}
	suspended := b.AtWork(ctx)
	ran, _ := b.running(ctx)
	if err := b.Stop(ctx); err != nil && !errors.Is(err, platform.ErrNotInstalled) {
		return platform.ServiceReport{}, err
	}
	if err := b.endLeft(ctx); err != nil { // also where no service was installed
		return platform.ServiceReport{}, err
	}
	if running, err := b.running(ctx); purge && (err != nil || running != nil) {
		return platform.ServiceReport{}, &control.Error{Code: control.CodeRefused, Message: "a supervisor runs that isn't the service's, and has its ledger open; end it (intermission status has its pid), and purge again"}
	}
	report, err := b.system().Uninstall(ctx)
	if errors.Is(err, platform.ErrNotInstalled) && !purge {
		return report, errors.New("the service is not installed")
	}
	if errors.Is(err, platform.ErrNotInstalled) && purge {
		report, err = platform.ServiceReport{Done: []string{"No service was installed."}, Next: []string{}}, nil
	}
	if ran != nil {
		report.Done = append([]string{"Stopped the supervisor and its server."}, report.Done...)
	}
	switch {
	case err != nil:
		return report, err
	case suspended > 0 && !purge:
		report.Done = append(report.Done, fmt.Sprintf("Suspended %s; what waits for your consent is kept in %s.", sessions(suspended), b.Paths.State))
		return report, nil
	case !purge:
		report.Done = append(report.Done, "What waits for your consent is kept in "+b.Paths.State+".")
		return report, nil
	}
	if err := purgeFiles(b.Paths); err != nil {
		return report, err
	}
	report.Done = append(report.Done, "Removed the ledger and the logs in "+b.Paths.State+"; "+b.kept())
	return report, nil
}

// Status tells how the service is installed and who runs.
func (b Background) Status(ctx context.Context) (Status, error) {
	installed, err := b.system().Status(ctx)
	if err != nil {
		return Status{}, err
	}
	st := Status{ServiceStatus: installed, Reason: installed.Failure}
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	if answer, err := client.Status(ctx); err == nil {
		st.Supervisor, st.Server, st.Reason = &answer.Supervisor, answer.Server.State, answer.Server.Reason
	}
	return st, nil
}

// running is the supervisor that answers; nil for none.
func (b Background) running(ctx context.Context) (*control.SupervisorStatus, error) {
	client := control.Dial(b.Paths.LiveSocket())
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil {
		if control.AsError(err).Code == control.CodeNoSupervisor {
			return nil, nil
		}
		return nil, err
	}
	return &st.Supervisor, nil
}
