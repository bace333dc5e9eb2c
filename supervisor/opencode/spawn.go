package opencode

import (
	"slices"
	"strconv"
	"strings"
)

// Spawn gives the command line and the environment of the incarnation id. port
// and password are v1's, which is told both: v2 takes them from its own
// configuration. The password is in the environment only, since command lines
// can be read by every user of the machine.
func (i *Install) Spawn(id string, port int, password string) (argv, env []string) {
	e := environ(i.Env).without(notForServer...)
	e = append(e, markerVariable+"="+id)
	args := slices.Clone(i.Args)
	if i.Generation == V1 {
		e = append(e, "OPENCODE_SERVER_PASSWORD="+password)
		args = argsV1(args, port)
	} else if len(args) == 0 {
		args = []string{"serve", "--service"}
	}
	return append([]string{i.Program}, args...), e
}

// argsV1 keeps the user's arguments but for those that v1 doesn't have or that
// decide where it listens.
func argsV1(args []string, port int) []string {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	var kept []string
	for n := 0; n < len(args); n++ {
		name, _, valued := strings.Cut(args[n], "=")
		switch name {
		case "--service":
		case "--hostname", "--port":
			if !valued {
				n++ // its value is the next argument
			}
		default:
			kept = append(kept, args[n])
		}
	}
	return append(kept, "--hostname", "127.0.0.1", "--port", strconv.Itoa(port))
}
