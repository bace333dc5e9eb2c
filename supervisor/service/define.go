// Package service is the supervisor as the user's background service: what is
// installed (Define), and the acts on it in which the supervisor that runs has a
// part. What differs by system is platform.Service.
package service

import (
	"os/user"
	"path/filepath"

	"intermission/platform"
)

// Name is the service's name, and the stem of its unit, agent or task.
const Name = "intermission"

// moves are the variables that move our files or the server's, with their value
// below the home directory where that is what they have unset; ours have none.
var moves = map[string]string{
	"INTERMISSION_CONFIG": "", "INTERMISSION_STATE_DIR": "", "INTERMISSION_RUNTIME_DIR": "",
	"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache",
}

// Define gives the service for a program (an absolute path that stays when versions
// change), as it is to be for whoever has this environment: what moves files is
// written into the definition, so that a service and a terminal mean the same ones.
func Define(program, version string, getenv func(string) string) platform.Service {
	s := platform.Service{
		Name: Name, Title: "Intermission", Comment: "Keeps the OpenCode server running, and asks before a session goes on",
		Argv: []string{program, "run", "--service"}, Env: map[string]string{}, Version: version,
	}
	home := getenv("HOME")
	for name, usual := range moves {
		value := getenv(name)
		if filepath.IsAbs(value) && (usual == "" || filepath.Clean(value) != filepath.Join(home, usual)) {
			s.Env[name] = value
		}
	}
	// A service manager gives the account's own home directory.
	if account, err := user.Current(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != filepath.Clean(account.HomeDir) {
		s.Env["HOME"] = home
	}
	return s
}
