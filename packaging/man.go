package packaging

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Man gives the manual page intermission(1), in the man macros, for a version and
// the date of its release (2026-11-30). What a command or a flag does is said by the
// command line itself, and so can't differ from it.
func Man(app *kong.Application, version, date string) string {
	var p page
	p.line(".TH INTERMISSION 1 %s %s %s", date, argument("Intermission "+version), argument("User Commands"))
	p.line(".SH NAME")
	p.line(`intermission \- keeps the OpenCode server running, and no session goes on unasked`)
	p.line(".SH SYNOPSIS")
	p.line(".B intermission")
	p.line(".I COMMAND")
	p.line(`.RI [ ARGUMENTS ]`)
	p.line(".SH DESCRIPTION")
	p.text(app.Help)
	p.paragraph(`The supervisor (intermission run) starts the server, or adopts the one that runs, and sees to it that what was at
work when it ended waits: each session until its user resumes or dismisses it. It runs in the background as the service of one
user, who installs it by intermission service install, and never as root. The tray (intermission tray) shows what waits in the
desktop's menu; each of its acts is a command too.`)
	p.line(".SH COMMANDS")
	p.commands(app.Node)
	p.line(".SH OPTIONS")
	p.text("These go with every command.")
	p.flags(app.Flags)
	p.line(".SH EXIT STATUS")
	for _, status := range exitStatuses {
		p.entry(roman(status[0]), status[1])
	}
	p.line(".SH ENVIRONMENT")
	for _, variable := range variables {
		p.entry(bold(variable[0]), variable[1])
	}
	p.line(".SH FILES")
	for _, file := range files {
		p.entry(italic(file[0]), file[1])
	}
	p.line(".SH SEE ALSO")
	p.line(".BR systemctl (1),")
	p.line(".BR loginctl (1)")
	return p.String()
}

// What scripts rely on; the README says the same at more length.
var (
	exitStatuses = [][2]string{
		{"0", "Done."},
		{"1", "Failed."},
		{"2", "Used wrongly, or the beginning of an id was ambiguous."},
		{"3", "No supervisor is running."},
		{"4", "No such suspension is pending, or no such session is at work."},
		{"5", "Refused: the session runs elsewhere, its directory is missing, or the server is down. It stays pending."},
		{"6", "The outcome is not known; going on needs a new consent."},
	}
	variables = [][2]string{
		{"INTERMISSION_CONFIG", "Another configuration file."},
		{"INTERMISSION_STATE_DIR", "Another directory for ledger and logs."},
		{"INTERMISSION_RUNTIME_DIR", "Another directory for socket and locks."},
		{"NO_COLOR", "No colours, whatever its value."},
	}
	files = [][2]string{
		{"~/.config/intermission/config.toml", "The configuration; every key is optional."},
		{"~/.local/state/intermission/", "The ledger of suspensions, and in log/ the logs."},
		{"$XDG_RUNTIME_DIR/intermission/", "The socket and the locks."},
	}
)

// page is a manual page that is being written.
type page struct{ strings.Builder }

// line writes a line of roff as it stands.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// text writes words of a paragraph.
func (p *page) text(words string) {
	for line := range strings.Lines(words) {
		if line = roman(strings.TrimSpace(line)); line != "" {
			p.line("%s", line)
		}
	}
}

func (p *page) paragraph(words string) {
	p.line(".PP")
	p.text(words)
}

// entry writes a term, which is roff already, and what it means.
func (p *page) entry(term, meaning string) {
	p.line(".TP")
	p.line("%s", term)
	p.text(meaning)
}

// commands writes what stands below a node, each command with its arguments and flags.
func (p *page) commands(node *kong.Node) {
	for _, command := range node.Leaves(true) {
		term := bold(command.Path())
		for _, arg := range command.Positional {
			term += " " + synopsis(arg)
		}
		p.entry(term, command.Help)
		if command.Detail != "" {
			p.text(command.Detail)
		}
		var flags []*kong.Flag
		for n := command; n != nil && n.Type != kong.ApplicationNode; n = n.Parent {
			flags = append(flags, n.Flags...)
		}
		if len(command.Positional)+len(flags) == 0 {
			continue
		}
		p.line(".RS")
		for _, arg := range command.Positional {
			p.entry(italic(strings.ToUpper(arg.Name)), arg.Help)
		}
		p.flags(flags)
		p.line(".RE")
	}
}

// synopsis is an argument as a command's line shows it.
func synopsis(arg *kong.Value) string {
	name := italic(strings.ToUpper(arg.Name))
	if arg.IsCumulative() {
		name += " ..."
	}
	if !arg.Required {
		name = "[" + name + "]"
	}
	return name
}

func (p *page) flags(flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		term := bold("--" + f.Name)
		if f.Short != 0 {
			term = bold("-"+string(f.Short)) + ", " + term
		}
		if !f.IsBool() && !f.IsCounter() {
			term += "=" + italic(f.FormatPlaceHolder())
		}
		p.entry(term, f.Help)
	}
}

func bold(s string) string   { return `\fB` + roman(s) + `\fR` }
func italic(s string) string { return `\fI` + roman(s) + `\fR` }

// roman escapes what roff would take for its own: a backslash, a control line's
// beginning, and hyphens, which a reader copies as the minus of an option.
func roman(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// argument quotes an argument of a macro.
func argument(s string) string { return `"` + strings.ReplaceAll(roman(s), `"`, `\(dq`) + `"` }
