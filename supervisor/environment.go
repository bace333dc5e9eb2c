package supervisor

import (
	"context"
	"time"

	"intermission/platform"
)

// Origin says where a variable of the server's environment came from.
type Origin string

// The origins, in order of precedence: a variable that several give is the first one's.
const (
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
	// LoginAt counts instead, if that isn't zero. Both are empty where it isn't asked.
	LoginFault error     `json:"-"`
	LoginAt    time.Time `json:"loginAt,omitzero"`
	KeptFault  error     `json:"-"` // the lines of the kept file that are none, by number
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

// Environment gives the server's environment as a supervisor would make it now. It
// asks the login shell, for at most 5 s.
func Environment(ctx context.Context, o EnvironmentOptions) ServerEnvironment {
	return ServerEnvironment{}
}
