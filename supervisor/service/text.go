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
	if !st.Installed {
		row("service", "not installed; install it with: intermission service install")
	} else {
		row("service", "%s, %s", st.Kind, st.Definition)
		row("state", "%s", orElse(st.State, map[bool]string{true: "running", false: "stopped"}[st.Running]))
		row("at login", "%s", map[bool]string{true: "started by itself", false: "not started; switch it on with: intermission service install"}[st.Enabled])
		if st.Kind == platform.SystemdUser {
			row("lingering", "%s", map[bool]string{true: "yes: it runs from boot on, and after logout", false: "no: it ends with your last login session; change it with: intermission service install --linger"}[st.Lingering])
		}
		row("program", "%s, version %s", st.Program, orElse(st.Version, "unknown"))
		if !st.Current {
			row("", "not what this intermission would install; update it with: intermission service install")
		}
	}
	switch {
	case st.Supervisor != nil:
		row("supervisor", "pid %d, version %s, its server is %s", st.Supervisor.PID, st.Supervisor.Version, st.Server)
	case st.Running && st.User != "":
		row("supervisor", "pid %d, which answers %s only; as %s: intermission status", st.PID, st.User, st.User)
	case st.Running:
		row("supervisor", "pid %d, and doesn't answer", st.PID)
	default:
		row("supervisor", "none runs")
	}
	return b.String()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
