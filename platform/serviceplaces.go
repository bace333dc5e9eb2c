package platform

import (
	"os/user"
	"path/filepath"
)

// moves are the variables that move our files, or the server's, with their value
// below the home directory where that is what they have unset.
var moves = map[string]string{
	envConfig: "", envState: "", envRuntime: "",
	"XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".local/state", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache",
}

// For gives the service as it is to be for whoever has this environment: what moves
// files stands in the definition, so that a service and a terminal mean the same ones.
// The runtime directory of a session (XDG_RUNTIME_DIR) doesn't: each session has its own.
func (s Service) For(getenv func(string) string) Service {
	env := map[string]string{}
	home := getenv("HOME")
	for name, usual := range moves {
		value := getenv(name)
		if filepath.IsAbs(value) && (usual == "" || filepath.Clean(value) != filepath.Join(home, usual)) {
			env[name] = value
		}
	}
	// A service manager gives the home directory that the account has.
	if account, err := user.Current(); err == nil && filepath.IsAbs(home) && filepath.Clean(home) != filepath.Clean(account.HomeDir) {
		env["HOME"] = home
	}
	if len(env) > 0 {
		s.Env = env
	}
	return s
}
