// Package doctor looks at everything that Intermission depends on, and says of each
// thing how it is and what one act would mend it. It changes nothing and starts
// nothing but the server's program, which it asks for its version, and the user's
// login shell, which it asks for its environment.
//
//	r := doctor.Run(ctx, doctor.Options{Version: v, Program: self})
//	io.WriteString(os.Stdout, r.Text(colour))
//	if !r.OK { os.Exit(1) }
//
// The exit status of the command is 0 when no check has failed, and 1 otherwise;
// warnings don't count. Bundle writes what a person can send to those who help: the
// report, our logs and our state, without secrets, and without what was said in
// sessions unless that is asked for.
package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// State is how a thing is.
type State string

// The states.
const (
	OK      State = "ok"
	Warning State = "warning" // it works, or will, but not as it should
	Failed  State = "failed"  // it doesn't work
	Skipped State = "skipped" // it doesn't apply here, or can't be told for another failure
)

// Check is what was found of one thing.
type Check struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"` // one line
	Act    string `json:"act"`    // the one act that mends it, a command or an edit; "" when nothing is wrong
}

// Report is all checks, in an order that doesn't change.
type Report struct {
	OK      bool      `json:"ok"` // nothing has failed
	Version string    `json:"version"`
	System  string    `json:"system"`
	At      time.Time `json:"at"`
	Checks  []Check   `json:"checks"`
}

// Options is what the doctor is told. Only Version and Program are needed.
type Options struct {
	Version string               // of this program
	Program string               // its absolute path
	Built   time.Time            // when it was built; zero takes what the Go tool recorded
	Getenv  func(string) string  // nil takes the process's environment
	Process []string             // what the server's environment is made of; nil as supervisor.EnvironmentOptions says
	Service *platform.Service    // nil takes platform.SupervisorService
	Entry   *platform.Autostart  // the tray's at login; nil takes ours
	Now     func() time.Time     // nil takes the clock
	Clock   func() (bool, error) // nil takes platform.ClockSynchronised
	User    func() User          // who asks, and how; nil takes the process's
	limits  map[string]time.Duration
}

// User is who asks the doctor.
type User struct {
	Root       bool
	NoManager  bool   // systemd runs, but no manager of this user
	RuntimeDir string // XDG_RUNTIME_DIR, where it is another user's
}

// deadline bounds all checks together. They run side by side.
const deadline = 19 * time.Second

// limit bounds a check for which no other bound stands in the list.
const limit = 6 * time.Second

// examination is one entry of the list of checks.
type examination struct {
	name  string
	limit time.Duration // 0: limit
	look  func(*patient, context.Context) Check
}

// examinations are all checks, in their order. Those that need the program or the
// server's environment wait for the login shell (5 s) and for --version (15 s).
var examinations = []examination{
	{"configuration", 0, (*patient).checkConfiguration},
	{"directories", 0, (*patient).checkDirectories},
	{"supervisor", 0, (*patient).checkSupervisor},
	{"socket", 0, (*patient).checkSocket},
	{"instance lock", 0, (*patient).checkInstanceLock},
	{"service", 0, (*patient).checkService},
	{"start", 0, (*patient).checkStart},
	{"lingering", 0, (*patient).checkLingering},
	{"program", deadline, (*patient).checkProgram},
	{"version", deadline, (*patient).checkVersion},
	{"server", 0, (*patient).checkServer},
	{"server version", deadline, (*patient).checkServerVersion},
	{"server lock", deadline, (*patient).checkServerLock},
	{"other servers", deadline, (*patient).checkOtherServers},
	{"port", deadline, (*patient).checkPort},
	{"database", deadline, (*patient).checkDatabase},
	{"ledger", 10 * time.Second, (*patient).checkLedger},
	{"disk", 0, (*patient).checkDisk},
	{"path", 12 * time.Second, (*patient).checkPath},
	{"proxies", 12 * time.Second, (*patient).checkProxies},
	{"logs", 0, (*patient).checkLogs},
	{"clock", 0, (*patient).checkClock},
	{"tray host", 0, (*patient).checkTrayHost},
	{"tray", 0, (*patient).checkTray},
	{"notifications", 0, (*patient).checkNotifications},
}

// patient is what is looked at. Its functions ask once, whoever calls first.
type patient struct {
	Options
	paths     platform.Paths
	noPaths   error // why paths are not known
	config    supervisor.Config
	root      bool   // root asks
	noManager bool   // systemd runs, and no manager of this user
	foreign   string // XDG_RUNTIME_DIR, where it is another user's
	noConfig  error  // why the configuration is not known; config is the default then

	status      func() (control.Status, error)
	service     func() (platform.ServiceStatus, error)
	environment func() supervisor.ServerEnvironment
	program     func() program
	entries     func() (newest time.Time, err error) // of the ledger's journal
}

// newPatient prepares the questions; they are asked within ctx.
func newPatient(ctx context.Context, o Options) *patient {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = platform.ClockSynchronised
	}
	if o.Service == nil {
		s := platform.SupervisorService(o.Program, o.Version)
		o.Service = &s
	}
	if o.Entry == nil {
		o.Entry = &platform.Autostart{Name: "intermission-tray"}
	}
	p := &patient{Options: o}
	if o.User == nil {
		o.User = func() User {
			return User{os.Geteuid() == 0, platform.NoUserManager(), platform.ForeignRuntimeDir(o.Getenv)}
		}
	}
	u := o.User()
	p.root, p.noManager, p.foreign = u.Root, u.NoManager, u.RuntimeDir
	if p.paths, p.noPaths = platform.FindPaths(o.Getenv); p.noPaths != nil {
		p.config = supervisor.DefaultConfig()
	} else if p.config, p.noConfig = p.loadConfig(); p.noConfig != nil {
		p.config = supervisor.DefaultConfig()
	}
	p.status = sync.OnceValues(func() (control.Status, error) { return p.askStatus(ctx) })
	p.service = sync.OnceValues(func() (platform.ServiceStatus, error) { return o.Service.Status(ctx) })
	p.environment = sync.OnceValue(func() supervisor.ServerEnvironment { return p.makeEnvironment(ctx) })
	p.program = sync.OnceValue(func() program { return p.locate(ctx) })
	p.entries = sync.OnceValues(func() (time.Time, error) { return newestEntry(ctx, p.paths.Ledger) })
	return p
}

// Run looks at everything, within 20 s.
func Run(ctx context.Context, o Options) Report {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return newPatient(ctx, o).examine(ctx)
}

func (p *patient) examine(ctx context.Context) Report {
	r := Report{OK: true, Version: p.Version, System: platform.SystemName(), At: p.Now().UTC().Truncate(time.Second)}
	results := make([]chan Check, len(examinations))
	for i, e := range examinations {
		results[i] = make(chan Check, 1)
		go func() { results[i] <- p.perform(ctx, e) }()
	}
	for i := range examinations {
		c := <-results[i]
		r.OK = r.OK && c.State != Failed
		r.Checks = append(r.Checks, c)
	}
	return r
}

// perform makes one check. One that takes no notice of its limit, as a call on a
// disk that hangs, is left behind.
func (p *patient) perform(ctx context.Context, e examination) Check {
	if e.limit == 0 {
		e.limit = limit
	}
	if l, ok := p.limits[e.name]; ok {
		e.limit = l
	}
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	done := make(chan Check, 1)
	go func() {
		defer func() {
			if fault := recover(); fault != nil {
				done <- failed("report this as a fault of intermission", "the check itself failed: %v", fault)
			}
		}()
		if p.noPaths != nil && e.name != "directories" && e.name != "configuration" {
			done <- skipped("where our files are is not known")
			return
		}
		if p.foreign != "" && p.Getenv("INTERMISSION_RUNTIME_DIR") == "" && slices.Contains(ofRuntime, e.name) {
			done <- p.checkForeign(e.name)
			return
		}
		if name := p.othersService(); name != "" && !slices.Contains(ofSystem, e.name) {
			done <- skipped("not root's: see what %s is told by: sudo -iu %s intermission doctor", name, name)
			return
		}
		done <- e.look(p, ctx)
	}()
	var c Check
	select {
	case c = <-done:
	case <-ctx.Done():
		c = failed("look whether a disk, the session bus or the service manager hangs, and try again", "no answer within %s", e.limit)
	}
	c.Name = e.name
	c.Detail, c.Act = restart.PlainText(c.Detail, maxDetail), restart.PlainText(c.Act, maxDetail)
	return c
}

// ofSystem are the checks that root has something to learn from where the service is
// another user's: the others look into root's own home.
var ofSystem = []string{"service", "start", "lingering", "clock"}

// othersService is the user whose system unit root asks about; "" for none.
func (p *patient) othersService() string {
	if !p.root {
		return ""
	}
	if s, err := p.service(); err == nil && s.Installed && s.Kind == platform.SystemdSystem {
		return s.User
	}
	return ""
}

// ofRuntime are the checks that another user's runtime directory misleads.
var ofRuntime = []string{"directories", "supervisor", "socket", "instance lock", "service", "start", "lingering"}

// checkForeign says once that the runtime directory is another user's.
func (p *patient) checkForeign(name string) Check {
	if name != "directories" {
		return skipped("XDG_RUNTIME_DIR is another user's: see the check directories")
	}
	return failed("unset it, or log in with: su - "+p.name(), "XDG_RUNTIME_DIR is another user's (%s)", p.foreign)
}

// maxDetail bounds a line, in characters.
const maxDetail = 600

func ok(format string, args ...any) Check {
	return Check{State: OK, Detail: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Check {
	return Check{State: Skipped, Detail: fmt.Sprintf(format, args...)}
}

func warning(act, format string, args ...any) Check {
	return Check{State: Warning, Detail: fmt.Sprintf(format, args...), Act: act}
}

func failed(act, format string, args ...any) Check {
	return Check{State: Failed, Detail: fmt.Sprintf(format, args...), Act: act}
}
