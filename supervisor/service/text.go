package service

import (
	"fmt"
	"strings"

	"intermission/platform"
	"intermission/restart"
)

// ReportText words a report for a terminal: what was done, a line each, and what comes next.
func ReportText(r platform.ServiceReport) string {
	var b strings.Builder
	for _, line := range r.Done {
		fmt.Fprintln(&b, line)
	}
	if len(r.Next) > 0 {
		fmt.Fprintln(&b, "\nNext:")
	}
	for _, line := range r.Next {
		fmt.Fprintln(&b, "  "+line)
	}
	return b.String()
}

// StatusText words a status for a terminal.
func StatusText(st Status) string {
	var b strings.Builder
	row := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s%s\n", label, restart.PlainText(fmt.Sprintf(format, args...), 1000))
	}
	if !st.Installed && st.Unreachable { // an installation would be refused
		row("service", "not installed, as far as its files tell")
		row("state", "%s", st.State)
	} else if !st.Installed {
		row("service", "not installed; install it with: intermission service install")
	} else {
		row("service", "%s", strings.TrimSuffix(string(st.Kind)+", "+st.Definition, ", "))
		row("state", "%s", orElse(st.State, map[bool]string{true: "running", false: "stopped"}[st.Running]))
		if st.Failure != "" && st.Supervisor == nil {
			row("", "it said: %s", st.Failure)
			row("", "mend that, and start it with: %sintermission service start", map[bool]string{true: "sudo "}[st.Kind == platform.SystemdSystem])
		}
		when, install := "at login", "intermission service install"
		switch st.Kind {
		case platform.SystemdUser:
			if st.Lingering {
				when = "at boot"
			}
		case platform.SystemdSystem:
			when, install = "at boot", "sudo intermission service install --system --user "+st.User
		case platform.DesktopLogin:
			when = "at a desktop's login, not by ssh"
		}
		row("started", "%s", map[bool]string{true: "by itself " + when, false: "not by itself; switch it on with: " + install}[st.Enabled])
		if st.Kind == platform.SystemdUser {
			row("lingering", "%s", map[bool]string{true: "yes: it runs from boot on, and after logout", false: "no: it ends with your last login session; change it with: intermission service install --linger"}[st.Lingering])
		}
		if st.Unreachable { // then the definition is not known
			return b.String()
		}
		if st.Supervisor != nil { // whose version is the one that counts; the definition may be an older one's
			row("program", "%s", st.Program)
		} else {
			row("program", "%s, installed by version %s", st.Program, orElse(st.Version, "unknown"))
		}
		if !st.Current {
			row("", "not what this intermission would install; update it with: %s", install)
		}
	}
	switch {
	case st.Supervisor != nil:
		row("supervisor", "pid %d, version %s", st.Supervisor.PID, st.Supervisor.Version)
		row("server", "%s", st.Server)
		if st.Reason != "" && len(st.Next) == 0 {
			row("", "%s", st.Reason)
		}
	case st.Running && st.User != "":
		row("supervisor", "pid %d, which answers %s only; as %s: intermission status", st.PID, st.User, st.User)
	case st.Running:
		row("supervisor", "pid %d, and doesn't answer", st.PID)
	default:
		row("supervisor", "none runs")
	}
	if st.Suspended > 0 {
		row("suspended", "%s; what waits for your consent is shown once it is started: intermission pending", sessions(st.Suspended))
	}
	if len(st.Next) > 0 {
		fmt.Fprintln(&b, "\nNext:")
	}
	for _, line := range st.Next {
		fmt.Fprintln(&b, "  "+restart.PlainText(line, 1000))
	}
	return b.String()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
