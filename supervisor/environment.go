package supervisor

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"intermission/platform"
)

// Origin says where a variable of the server's environment came from.
type Origin string

// The origins, in order of precedence: a variable that several give is the first one's.
const (
	FromBefore     Origin = "running server"           // where its files are: that isn't moved under a server
	FromConfig     Origin = "config.toml"              // its [server] environment
	FromLoginShell Origin = "login shell"              // what its start-up files export
	FromKept       Origin = "kept file"                // the file environment beside config.toml
	FromProcess    Origin = "own process"              // what the service manager, or a terminal, gave us
	FromBoth       Origin = "login shell, own process" // PATH only
)

// Variable is one variable of the server's environment. Its value may be a secret.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin Origin `json:"origin"`
}

// ServerEnvironment is what the server is given, and why.
type ServerEnvironment struct {
	Variables []Variable `json:"variables"` // by name, each once

	// LoginFault says why the login shell could not be asked; what it said at
	// LoginAt counts instead, if that isn't zero, else with LoginPlain what it says
	// without its login files. All are empty where it isn't asked.
	LoginFault error     `json:"-"`
	LoginAt    time.Time `json:"loginAt,omitzero"`
	LoginPlain bool      `json:"-"`
	// Unsupervised says that no supervisor has run that is known of: what is of our
	// own process is of the asking one, and a service is given something else.
	Unsupervised bool  `json:"-"`
	KeptFault    error `json:"-"` // what is wrong in the kept file, by line; its other lines count
}

// Environ gives the variables as os.Environ does.
func (e ServerEnvironment) Environ() []string {
	env := make([]string, len(e.Variables))
	for i, v := range e.Variables {
		env[i] = v.Name + "=" + v.Value
	}
	return env
}

// EnvironmentOptions is what the environment is made of.
type EnvironmentOptions struct {
	Paths  platform.Paths
	Config Config
	Login  bool // ask the login shell, as `run --service` does
	// Process is what the supervisor's process was given. Nil takes what the one that
	// was started last was given, as far as it is recorded, else this process's own.
	Process []string
}

// Environment gives the server's environment as a supervisor that is started now
// would make it. It asks the login shell, for at most 5 s.
func Environment(ctx context.Context, o EnvironmentOptions) ServerEnvironment {
	memory := recallEnvironment(o.Paths.State)
	unsupervised := false
	if o.Process == nil {
		if o.Process = memory.Process; o.Process == nil {
			o.Process, unsupervised = os.Environ(), true
		}
	}
	var said loginAnswer
	if o.Login {
		said = askWithin(ctx, platform.LoginEnvironment, o.Process, memory)
	}
	e := makeEnvironment(o, said)
	e.Unsupervised = unsupervised
	return e
}

// makeEnvironment puts together what the origins give.
func makeEnvironment(o EnvironmentOptions, said loginAnswer) ServerEnvironment {
	kept, fault := loadKept(keptFile(o.Paths))
	e := ServerEnvironment{LoginFault: said.fault, LoginAt: said.at, LoginPlain: said.plain, KeptFault: fault}
	m := merged{}
	m.add(FromProcess, slices.DeleteFunc(slices.Clone(o.Process), func(entry string) bool {
		name, _, ok := strings.Cut(entry, "=")
		return !ok || isOfTheMoment(name)
	}))
	m.add(FromKept, kept)
	path, given := m[platform.VariableKey("PATH")]
	m.add(FromLoginShell, startupExports(said.env, o.Process))
	m.joinPath(path, given, lookUp(said.env, "PATH"))
	for name, value := range o.Config.Server.Environment {
		m.add(FromConfig, []string{name + "=" + value})
	}
	e.Variables = slices.SortedFunc(maps.Values(m), func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return e
}

// merged is what the origins so far give, by the key of the name.
type merged map[string]Variable

// add puts what another origin gives over what is there. A proxy has two spellings,
// of which programs prefer now the one and now the other: one hides both.
func (m merged) add(from Origin, entries []string) {
	for _, entry := range entries {
		if name, _, _ := strings.Cut(entry, "="); isProxy(name) {
			for key, v := range m {
				if strings.EqualFold(v.Name, name) && v.Origin != from {
					delete(m, key)
				}
			}
		}
	}
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			m[platform.VariableKey(name)] = Variable{name, value, from}
		}
	}
}

// joinPath makes PATH of the login shell's directories, and those that others have
// more: a manager's has what the desktop or the distribution adds.
func (m merged) joinPath(before Variable, given bool, login string) {
	if !given && login == "" {
		return
	}
	v := Variable{"PATH", cleanPath(login, before.Value), FromBoth}
	switch {
	case login == "":
		v.Name, v.Origin = before.Name, before.Origin
	case v.Value == cleanPath(login):
		v.Origin = FromLoginShell
		if v.Value == cleanPath(before.Value) {
			v.Origin = before.Origin
		}
	}
	m[platform.VariableKey("PATH")] = v
}

// cleanPath joins lists of directories, each directory once. A relative entry would
// mean another place in each session.
func cleanPath(lists ...string) string {
	var dirs []string
	for _, list := range lists {
		for _, dir := range filepath.SplitList(list) {
			if !filepath.IsAbs(dir) {
				continue
			}
			if dir = lasting(filepath.Clean(dir)); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// lasting gives the directory behind one that fnm makes for each shell, and that goes
// with the login session.
func lasting(dir string) string {
	if strings.Contains(filepath.ToSlash(dir), "/fnm_multishells/") {
		if behind, err := filepath.EvalSymlinks(dir); err == nil {
			return behind
		}
	}
	return dir
}

// startupExports are the variables that the login shell has by its start-up files, not
// by what it was given, and that are right for a server. PATH is dealt with elsewhere.
func startupExports(login, given []string) []string {
	return slices.DeleteFunc(slices.Clone(login), func(entry string) bool {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || slices.Contains(given, entry) || isOfTheMoment(name) || platform.VariableKey(name) == platform.VariableKey("PATH") {
			return true
		}
		switch {
		case matches(name, neverOfShell):
			return true
		case matches(name, managerFirst):
			return lookUp(given, name) != ""
		}
		return false
	})
}

// Names of variables; one that ends with * is a beginning.
var (
	// ofTheMoment are right in the shell, the terminal or the connection that has them
	// and nowhere else; a server outlives all of them.
	ofTheMoment = []string{
		"_", "PWD", "OLDPWD", "SHLVL", "A__z",
		"TERM", "TERMCAP", "TERM_PROGRAM*", "TERM_SESSION_ID", "COLORTERM", "COLUMNS", "LINES", "VTE_VERSION", "WINDOWID",
		"KONSOLE_*", "ITERM_*", "KITTY_*", "WEZTERM_*", "ALACRITTY_*", "GNOME_TERMINAL_*", "WT_SESSION", "WT_PROFILE_ID",
		"TMUX", "TMUX_PANE", "STY", "ZELLIJ*",
		"SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_ORIGINAL_COMMAND",
		"DESKTOP_STARTUP_ID", "XDG_ACTIVATION_TOKEN",
	}
	// neverOfShell come from our process or not at all: the shell that was asked had no
	// session of its own, and our own directories are no matter of start-up files.
	neverOfShell = []string{"XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR", "INTERMISSION_*"}
	// managerFirst are of the login session, of which the service manager knows better
	// than a line in a start-up file; without one, that line is the best there is.
	// SSH_AUTH_SOCK is not among them: who sets that there has chosen an agent.
	managerFirst = []string{"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP"}
)

func isOfTheMoment(name string) bool {
	return platform.IsManagerVariable(name) || matches(name, ofTheMoment)
}

func matches(name string, names []string) bool {
	return slices.ContainsFunc(names, func(known string) bool {
		beginning, open := strings.CutSuffix(known, "*")
		return name == known || open && strings.HasPrefix(name, beginning)
	})
}

// lookUp gives the value of a variable; of several, the last.
func lookUp(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if n, value, ok := strings.Cut(entry, "="); ok && platform.VariableKey(n) == platform.VariableKey(name) {
			return value
		}
	}
	return ""
}
