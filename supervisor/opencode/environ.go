package opencode

import (
	"os"
	"strings"
)

// markerVariable names, in the environment of every process of an incarnation,
// the incarnation that started it, so that what outlives its parent can still be told.
const markerVariable = "INTERMISSION_INCARNATION"

// notForServer are variables of the caller that must not reach the server: the
// first three belong to the service manager's protocol with us (a server that
// answered it would be taken for the supervisor), the others are set anew.
var notForServer = []string{
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
	"OPENCODE_SERVER_PASSWORD", "OPENCODE_SERVER_USERNAME", markerVariable,
}

// environ is a process environment in the form of os.Environ.
type environ []string

// get gives the value of name, "" when it isn't set. The last entry counts, as
// it does for os/exec. Names are compared without case, because Windows spells
// PATH as it likes and no variable that we look at differs from another by case.
func (e environ) get(name string) string {
	for i := len(e) - 1; i >= 0; i-- {
		if key, value, ok := strings.Cut(e[i], "="); ok && strings.EqualFold(key, name) {
			return value
		}
	}
	return ""
}

// without gives a copy that lacks names.
func (e environ) without(names ...string) environ {
	rest := make(environ, 0, len(e)+3)
	for _, entry := range e {
		key, _, _ := strings.Cut(entry, "=")
		keep := true
		for _, name := range names {
			keep = keep && !strings.EqualFold(key, name)
		}
		if keep {
			rest = append(rest, entry)
		}
	}
	return rest
}

// with gives a copy in which name has value.
func (e environ) with(name, value string) environ {
	return append(e.without(name), name+"="+value)
}

// home is the home directory that the server will see.
func (e environ) home() string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := e.get(name); dir != "" {
			return dir
		}
	}
	dir, err := os.UserHomeDir()
	if err != nil {
		return os.TempDir()
	}
	return dir
}
