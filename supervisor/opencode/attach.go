package opencode

// Attach gives the command that opens OpenCode's own interface on a session of the
// running server inc, to be run in the session's directory, and what has to be added
// to the environment of whom runs it. A password is in the environment only, since
// command lines can be read by every user of the machine.
//
// v1 attaches to the server (1.18.33: attach). v2 finds the registered server by
// itself; no published v2 could be had to try that on.
func (i *Install) Attach(inc Incarnation, session, dir string) (argv []string, env map[string]string) {
	argv = append([]string{i.Program}, i.leading()...)
	if i.Generation != V1 {
		return append(argv, "--session", session), map[string]string{}
	}
	argv = append(argv, "attach", inc.URL, "--session", session, "--dir", dir)
	// The name too: who has set another for a server of their own would be refused.
	return argv, map[string]string{"OPENCODE_SERVER_PASSWORD": inc.Password, "OPENCODE_SERVER_USERNAME": Username}
}

// Path is the PATH that the program needs: that of its server.
func (i *Install) Path() string { return environ(i.Env).get("PATH") }
