package platform

import (
	"encoding/xml"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// launchAgentLabel is the agent's name, and the stem of its file.
func (a Autostart) launchAgentLabel() string { return "org." + app + "." + a.Name }

// launchAgent is the property list that makes launchd start the program at each
// login to the graphical session (launchd.plist(5)). Without KeepAlive: who quits
// the program has quit it.
func (a Autostart) launchAgent() []byte {
	var p plist
	p.text("Label", a.launchAgentLabel())
	p.texts("ProgramArguments", a.Argv)
	p.raw("RunAtLoad", "<true/>")
	p.text("LimitLoadToSessionType", "Aqua")
	p.text("ProcessType", "Interactive")
	return p.document()
}

// launchAgentLabel is the supervisor's name in launchd, and the stem of its file.
func (s Service) launchAgentLabel() string { return Autostart{Name: s.Name}.launchAgentLabel() }

// launchThrottle is how long launchd waits, in seconds, before it starts an agent
// again that has not lived longer than that. It is launchd's own default.
const launchThrottle = 10

// launchAgent is the property list of the supervisor (launchd.plist(5)).
//
// A supervisor that ends with 0 was stopped, and stays so; with anything else, and
// by a signal, it is started again. What it has started is left alone then
// (AbandonProcessGroup): the next supervisor adopts it. Aqua alone, for with
// Background beside it launchd would load the agent in both of a user's domains,
// and two supervisors would fight over one lock. Interactive, for the limits of the
// other types hold for the server and its tools too, whose answer a person awaits.
// errors takes what is said before our own log is open.
func (s Service) launchAgent(errors string) []byte {
	p := plist{comment: launchVersion + s.Version}
	p.text("Label", s.launchAgentLabel())
	p.texts("ProgramArguments", s.Argv)
	if len(s.Env) > 0 {
		var env strings.Builder
		for _, k := range slices.Sorted(maps.Keys(s.Env)) {
			env.WriteString("\n\t\t<key>" + xmlText(k) + "</key>\n\t\t<string>" + xmlText(s.Env[k]) + "</string>")
		}
		p.raw("EnvironmentVariables", "<dict>"+env.String()+"\n\t</dict>")
	}
	p.raw("RunAtLoad", "<true/>")
	p.raw("KeepAlive", "<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>")
	p.number("ThrottleInterval", launchThrottle)
	p.number("ExitTimeOut", int(ServiceStopLimit.Seconds()))
	p.raw("AbandonProcessGroup", "<true/>")
	p.text("LimitLoadToSessionType", "Aqua")
	p.text("ProcessType", "Interactive")
	p.text("StandardErrorPath", errors)
	return p.document()
}

// launchVersion stands in a comment before the version that has written the list:
// launchd logs a complaint about keys that it doesn't know.
const launchVersion = "written by intermission "

// launchAgentVersion is the version that has written the list; "" when it doesn't say.
func launchAgentVersion(data []byte) string {
	_, rest, found := strings.Cut(string(data), "<!-- "+launchVersion)
	version, _, ended := strings.Cut(rest, " -->")
	if !found || !ended {
		return ""
	}
	return version
}

// sameLaunchAgent tells whether two lists differ in nothing that launchd reads.
func sameLaunchAgent(a, b []byte) bool {
	plain := func(data []byte) string {
		before, rest, found := strings.Cut(string(data), "<!-- "+launchVersion)
		_, after, ended := strings.Cut(rest, " -->\n")
		if !found || !ended {
			return string(data)
		}
		return before + after
	}
	return plain(a) == plain(b)
}

// launchAgentProgram is the program that the list starts; "" when it names none.
func launchAgentProgram(data []byte) string {
	var list struct {
		Arguments []string `xml:"dict>array>string"`
	}
	if xml.Unmarshal(data, &list) != nil || len(list.Arguments) == 0 {
		return ""
	}
	return list.Arguments[0]
}

// launchctlState takes what "launchctl print" says of a job: its state in
// launchd's words, and its process, 0 when it has none. Only the job's own lines
// count, and those are indented once.
func launchctlState(out string) (state string, pid int) {
	for line := range strings.Lines(out) {
		key, value, found := strings.Cut(strings.TrimRight(line, "\n"), " = ")
		switch {
		case found && key == "\tstate":
			state = value
		case found && key == "\tpid":
			pid, _ = strconv.Atoi(value)
		}
	}
	return state, pid
}

// launchctlDisabled tells whether "launchctl print-disabled" names the job as
// switched off; older systems say true for it.
func launchctlDisabled(out, label string) bool {
	for line := range strings.Lines(out) {
		name, word, _ := strings.Cut(strings.TrimSpace(line), " => ")
		if name == strconv.Quote(label) {
			return word == "disabled" || word == "true"
		}
	}
	return false
}

// plist is a property list under way.
type plist struct {
	comment string
	keys    strings.Builder
}

func (p *plist) raw(key, value string) {
	p.keys.WriteString("\t<key>" + key + "</key>\n\t" + value + "\n")
}

func (p *plist) text(key, value string) { p.raw(key, "<string>"+xmlText(value)+"</string>") }

func (p *plist) number(key string, n int) {
	p.raw(key, "<integer>"+strconv.Itoa(n)+"</integer>")
}

func (p *plist) texts(key string, values []string) {
	var b strings.Builder
	for _, v := range values {
		b.WriteString("\n\t\t<string>" + xmlText(v) + "</string>")
	}
	p.raw(key, "<array>"+b.String()+"\n\t</array>")
}

func (p *plist) document() []byte {
	comment := ""
	if p.comment != "" { // two hyphens end a comment
		comment = "<!-- " + strings.ReplaceAll(xmlText(p.comment), "--", "-") + " -->\n"
	}
	return []byte(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
` + comment + `<plist version="1.0">
<dict>
` + p.keys.String() + `</dict>
</plist>
`)
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// launchAgentDisabled tells whether the list has <key>Disabled</key><true/>.
func launchAgentDisabled(data []byte) bool {
	compact := strings.Join(strings.Fields(string(data)), "")
	return strings.Contains(compact, "<key>Disabled</key><true/>")
}
