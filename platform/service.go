package platform

import (
	"context"
	"errors"
	"time"
)

// ServiceKind is how the operating system keeps the supervisor running.
type ServiceKind string

// The kinds.
const (
	SystemdUser    ServiceKind = "systemd user unit"   // Linux, the default
	SystemdSystem  ServiceKind = "systemd system unit" // Linux, with User=; installed by root
	DesktopLogin   ServiceKind = "desktop autostart"   // Linux without systemd: the desktop starts it at login
	LaunchdAgent   ServiceKind = "launchd agent"       // macOS
	WindowsService ServiceKind = "Windows service"     // under the user's account
	LogonTask      ServiceKind = "logon task"          // Windows, the default
)

// ServiceStopLimit is how long a service manager waits for the supervisor to end
// before it kills it: what our definitions tell it. It is shorter than the 120 s
// that systemd leaves to all services of a user at shutdown (user@.service).
const ServiceStopLimit = 90 * time.Second

// HandedOverStatus is the exit status of a supervisor that has left its server to
// the next one: the definitions have the service manager start that at once.
const HandedOverStatus = 75

// ErrNotInstalled says that no service is installed.
var ErrNotInstalled = errors.New("the service is not installed; install it with: intermission service install")

// ErrStopByControl says that the service runs, and that what has started it can only
// kill it: tell the supervisor itself to end, by its control API, then ask again.
var ErrStopByControl = errors.New("only the supervisor can stop itself in order here")

// What comes next after an installation, by ServiceReport; whoever does it drops the line.
const (
	HintStart   = "To start it now: intermission service start"
	HintRestart = "What runs was started by the older definition; to replace it without stopping the server: intermission service restart"
)

// Service is the supervisor as a background service of one user. It never runs as
// root or LocalSystem.
type Service struct {
	Name           string            // "intermission": of the unit, the agent (with a prefix) or the task
	Title, Comment string            // what the system's own tools show; one line each
	Argv           []string          // the program, an absolute path that stays when versions change, and its arguments
	Env            map[string]string // what moves our directories, where it isn't the default
	Version        string            // of the program; stands in the definition
}

// ServiceOptions is what a person chooses at the installation. Zero is the default.
type ServiceOptions struct {
	Kind   ServiceKind // "" takes what fits the system and the account
	User   string      // SystemdSystem: whose sessions they are
	Linger bool        // SystemdUser: also from boot on, and after logout
	// AskPassword asks without echo; nil when nobody can be asked. WindowsService only.
	AskPassword func(prompt string) (string, error)
}

// ServiceReport is what was done, and what comes next, in sentences for people.
type ServiceReport struct {
	Kind ServiceKind `json:"kind"`
	Done []string    `json:"done"` // never nil
	Next []string    `json:"next"` // never nil
}

// ServiceStatus is what the system knows of the service.
type ServiceStatus struct {
	Installed   bool        `json:"installed"`  // what only a package brought isn't, until this user enables or starts it
	Kind        ServiceKind `json:"kind"`       // "" when not installed
	Definition  string      `json:"definition"` // file of the unit or agent, name of the service or task
	Program     string      `json:"program"`    // what the definition starts
	Version     string      `json:"version"`    // of the intermission that wrote the definition; "" unknown
	Current     bool        `json:"current"`    // the definition is what Install would write now, but for the version
	Enabled     bool        `json:"enabled"`    // it is started by itself, at login or boot
	Running     bool        `json:"running"`
	Comes       bool        `json:"-"`                     // not running, and about to be started again by its manager, as after a handover
	State       string      `json:"state"`                 // in the manager's own words, its status line included
	PID         int         `json:"pid"`                   // 0 when not running or not known
	Lingering   bool        `json:"lingering"`             // it runs without a login session too
	Failure     string      `json:"failure,omitempty"`     // of one that has failed, or fails at each start: the last that it said
	Unreachable bool        `json:"unreachable,omitempty"` // the manager doesn't answer: only the files tell
	User        string      `json:"user"`                  // SystemdSystem: whose sessions they are; its supervisor answers that user alone
}

// Install defines the service and has it started at each login (or boot), over an
// older definition too; with nothing to change it changes nothing. It doesn't start
// it. When it fails, what it did is undone.
func (s Service) Install(ctx context.Context, o ServiceOptions) (ServiceReport, error) {
	return s.install(ctx, o)
}

// Uninstall stops the service and removes every definition of ours. ErrNotInstalled when there is none.
func (s Service) Uninstall(ctx context.Context) (ServiceReport, error) { return s.uninstall(ctx) }

// Start starts the service and waits until it says that it is ready. Starting a
// running one does nothing.
func (s Service) Start(ctx context.Context) error { return s.start(ctx) }

// Stop stops the service and waits for its end: the supervisor is told alone, and stops
// its server itself. ErrStopByControl where nothing but the supervisor can do that
// (LogonTask, DesktopLogin), from Uninstall too.
func (s Service) Stop(ctx context.Context) error { return s.stop(ctx) }

// Status tells how the service is installed, and whether it runs.
func (s Service) Status(ctx context.Context) (ServiceStatus, error) { return s.status(ctx) }
