package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"intermission/platform"
	"intermission/supervisor"
)

// What is around us: service manager, environment, clock, desktop.

func (p *patient) checkService(context.Context) Check {
	s, err := p.service()
	switch {
	case errors.Is(err, platform.ErrNotInstalled), err == nil && !s.Installed:
		return warning(p.installAct(), "not installed: the supervisor runs only while somebody has started it by hand")
	case err != nil:
		return warning("intermission service status", "cannot tell how the service is installed: %s", cut(err.Error()))
	}
	where := fmt.Sprintf("%s (%s)", s.Kind, s.Definition)
	switch {
	case s.Unreachable: // what its manager would start isn't known
		return failed(p.startAct(), "%s: %s", s.Kind, cut(s.State))
	case s.Version != "" && s.Version != p.Version:
		return warning("intermission service install", "%s was written by version %s, and this program is %s", where, s.Version, p.Version)
	case !s.Current:
		return warning("intermission service install", "%s is not what this program would write", where)
	case !s.Enabled:
		return warning("intermission service install", "%s is not started by itself", where)
	case !s.Running:
		if st, err := p.status(); err == nil {
			return warning("intermission service restart", "%s is not running; the supervisor that is (pid %d) was started by hand", where, st.Supervisor.PID)
		}
		return failed(p.startAct(), "%s is not running: %s", where, cut(s.State))
	}
	return ok("%s, %s", where, cut(s.State))
}

func (p *patient) checkStart(context.Context) Check {
	s, err := p.service()
	switch {
	case err != nil || !s.Installed:
		return skipped("no service is installed")
	case !s.Enabled:
		return warning("intermission service install", "the service is not started at login")
	case s.Lingering || s.Kind == platform.SystemdSystem || s.Kind == platform.WindowsService:
		return ok("at boot")
	}
	return ok("at login")
}

func (p *patient) checkLingering(context.Context) Check {
	s, err := p.service()
	switch {
	case err != nil || !s.Installed:
		return skipped("no service is installed")
	case s.Kind != platform.SystemdUser:
		return skipped("a %s has no such thing", s.Kind)
	case !s.Lingering:
		// Nobody has asked for it: on a laptop it is right so.
		return ok("off: some 10 s after your last logout the supervisor and its server are stopped, and started again at your next login; to keep them: intermission service install --linger")
	}
	return ok("on: the supervisor goes on after a logout")
}

func (p *patient) checkPath(context.Context) Check {
	env := p.environment()
	for _, v := range env.Variables {
		if !strings.EqualFold(v.Name, "PATH") {
			continue
		}
		if env.LoginFault != nil {
			detail := fmt.Sprintf("the login shell doesn't tell its PATH: %v", env.LoginFault)
			switch {
			case v.Origin == supervisor.FromConfig:
				detail = fmt.Sprintf("%s (%s); the login shell doesn't tell the other variables: %v", v.Value, from(env, v.Origin), env.LoginFault)
			case !env.LoginAt.IsZero():
				detail += "; what it said at " + env.LoginAt.Local().Format(time.DateTime) + " counts"
			case env.LoginPlain:
				detail += "; what it says without them counts"
			}
			if errors.Is(env.LoginFault, platform.ErrLoginFiles) {
				return warning("let that file leave out the exit or exec where "+platform.LoginAsking+" is set; or, where another shell is the one you use, make it the login shell: chsh", "%s", detail)
			}
			return warning("start your login shell by hand, and mend what it waits for", "%s", detail)
		}
		if c, other := p.checkRunning(env, []supervisor.Variable{v}); other {
			return c
		}
		return ok("%s (%s)%s", v.Value, from(env, v.Origin), p.untilService())
	}
	return warning("name the program with its directory: [server] command in "+p.paths.ConfigFile, "none is set")
}

// untilService says, while neither a service nor a supervisor is there, what is not
// known of the environment yet.
func (p *patient) untilService() string {
	if p.service == nil || p.status == nil {
		return ""
	}
	if s, err := p.service(); err == nil && s.Installed {
		return ""
	}
	if _, err := p.status(); err == nil {
		return ""
	}
	return "; a service asks the login shell too: what it will have isn't known until one is installed and started"
}

// proxyNames are the variables by which programs are told of a proxy, in lower case.
var proxyNames = []string{"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ftp_proxy", "socks_proxy", "node_extra_ca_certs"}

func isProxy(name string) bool { return slices.Contains(proxyNames, strings.ToLower(name)) }

func (p *patient) checkProxies(context.Context) Check {
	env := p.environment()
	var found []string
	var proxies []supervisor.Variable
	for _, v := range env.Variables {
		if !isProxy(v.Name) || v.Value == "" {
			continue
		}
		proxies = append(proxies, v)
		found = append(found, fmt.Sprintf("%s (%s)", v.Name, from(env, v.Origin)))
		if name := strings.ToLower(v.Name); strings.HasSuffix(name, "_proxy") && name != "no_proxy" {
			if u, err := url.Parse(v.Value); strings.Contains(v.Value, "://") && (err != nil || u.Host == "") {
				return warning(fmt.Sprintf("correct %s, which is %s: it is like http://proxy:3128", v.Name, from(env, v.Origin)), "%s, %s, is no address of a proxy", v.Name, from(env, v.Origin))
			}
		}
	}
	if env.KeptFault != nil {
		return warning("correct the file environment beside "+p.paths.ConfigFile, "%s", withoutValues(env.KeptFault.Error()))
	}
	if c, other := p.checkRunning(env, proxies); other {
		return c
	}
	if len(found) == 0 {
		return ok("none are set%s", p.untilService())
	}
	return ok("%s%s", strings.Join(found, ", "), p.untilService())
}

// from says in words where a variable of the environment came from.
func from(env supervisor.ServerEnvironment, o supervisor.Origin) string {
	own, login := "the supervisor's own environment", "the login shell"
	if env.Unsupervised {
		own = "the environment of this command, since no supervisor has run yet"
	}
	switch {
	case env.LoginFault == nil:
	case !env.LoginAt.IsZero():
		login = "what the login shell said at " + env.LoginAt.Local().Format(time.DateTime)
	case env.LoginPlain:
		login = "the login shell without its login files"
	}
	switch o {
	case supervisor.FromProcess:
		return "from " + own
	case supervisor.FromBoth:
		return "from " + login + " and " + own
	case supervisor.FromLoginShell:
		return "from " + login
	case supervisor.FromKept:
		return "from the file environment beside config.toml"
	case supervisor.FromConfig:
		return "from config.toml"
	case supervisor.FromBefore:
		return "from the running server"
	}
	return "from " + string(o)
}

// checkRunning compares variables, as a server that is started now would have them,
// with those that the running one was started with. Values are compared and not told.
func (p *patient) checkRunning(env supervisor.ServerEnvironment, now []supervisor.Variable) (c Check, other bool) {
	if p.status == nil {
		return Check{}, false
	}
	st, err := p.status()
	if err != nil || st.Server.State != "running" || st.Server.PID <= 1 {
		return Check{}, false
	}
	environ, err := platform.ProcessEnvironment(st.Server.PID)
	if err != nil || len(environ) == 0 {
		return Check{}, false // another system, or a process that hides it
	}
	var names []string
	for _, v := range now {
		if !slices.Contains(environ, v.Name+"="+v.Value) {
			names = append(names, fmt.Sprintf("%s (%s)", v.Name, from(env, v.Origin)))
		}
	}
	if len(names) == 0 {
		return Check{}, false
	}
	return warning("intermission restart (sessions at work then wait for consent)",
		"the running server was started without this, or with another value: %s", strings.Join(names, ", ")), true
}

// withoutValues takes away what may be the value of a variable.
func withoutValues(s string) string { return newRedactor(secrets{}).text(s) }

func (p *patient) built() time.Time {
	if !p.Built.IsZero() {
		return p.Built
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			at, _ := time.Parse(time.RFC3339, s.Value) // the zero time is before everything
			return at
		}
	}
	return time.Time{}
}

// clockSlack is how far apart two clocks are in order: that of who built the
// program, or of this machine before its clock was set.
const clockSlack = 2 * time.Minute

func (p *patient) checkClock(context.Context) Check {
	act := platform.TimeServiceAct()
	now := p.Now()
	if built := p.built(); built.Sub(now) > clockSlack {
		return failed(act, "it says %s, which is before this program was built (%s)", now.Format(time.DateTime), built.Local().Format(time.DateTime))
	}
	newest, err := p.entries()
	if err == nil && newest.Sub(now) > clockSlack {
		return failed(act, "it says %s, which is before the newest entry of the ledger (%s)", now.Format(time.DateTime), newest.Local().Format(time.DateTime))
	}
	switch synchronised, err := p.Clock(); {
	case err != nil:
		return ok("later than the program and the ledger; %v", err)
	case !synchronised:
		return warning(act, "nobody sets it by a time server: times of suspensions may be wrong")
	}
	return ok("synchronised")
}

func (p *patient) checkTrayHost(ctx context.Context) Check {
	look, err := platform.LookAtTray(ctx)
	switch {
	case errors.Is(err, platform.ErrNoDesktop):
		return skipped("no desktop session; all works by the command line")
	case err != nil:
		return warning("log out of the desktop and in again", "%s", err)
	case !look.Host:
		return warning("add one to the panel; on GNOME install the AppIndicator extension", "nothing shows tray icons here")
	}
	return ok("the desktop shows tray icons")
}

func (p *patient) checkTray(ctx context.Context) Check {
	on, err := p.Entry.Enabled()
	switch {
	case err != nil:
		detail, _ := split(err)
		return warning("intermission tray --autostart=on", "%s", detail)
	case !on:
		if _, err := platform.LookAtTray(ctx); errors.Is(err, platform.ErrNoDesktop) {
			return skipped("it isn't started at login, and there is no desktop session")
		}
		return warning("intermission tray --autostart=on", "it isn't started at login")
	}
	return ok("started at login")
}

func (p *patient) checkNotifications(ctx context.Context) Check {
	look, err := platform.LookAtNotifications(ctx)
	switch {
	case errors.Is(err, platform.ErrNoDesktop):
		return skipped("no desktop session")
	case err != nil:
		return warning("start the notification daemon again, or log out of the desktop and in again", "%s", err)
	case !p.config.Notify.Enabled:
		return ok("switched off by [notify] enabled in %s", p.paths.ConfigFile)
	case look.Server == "" && look.Startable:
		return ok("the desktop starts what shows them when one is sent")
	case look.Server == "":
		return warning("install a notification daemon, such as dunst", "nothing shows them here")
	case len(look.Can) > 0 && !slices.Contains(look.Can, "actions"):
		return ok("%s, without buttons", look.Server)
	}
	return ok("%s", look.Server)
}

// readJSON reads a small file that somebody may have put there in the place of ours.
func readJSON(path string, v any) error {
	const most = 64 << 10
	text, cut, err := platform.ReadTail(path, most, true)
	if err == nil && cut {
		err = &fs.PathError{Op: "read", Path: path, Err: errors.New("is too large")}
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}
