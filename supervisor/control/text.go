package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"intermission/restart"
)

// Text renders answers for a terminal. Whatever came from a session is cleaned
// again: it is untrusted, and a terminal obeys what it is sent.
type Text struct {
	Color bool
	Now   time.Time // what ages are counted from
}

// Bounds of what is quoted from sessions, in runes.
const (
	maxLine   = 200
	maxReason = 1000
)

// The terminal's colours, by what they mean here.
const (
	strong = "1"
	good   = "32"
	bad    = "31"
	warn   = "33"
	faint  = "2"
)

// clean makes text fit for one line of a terminal: escape sequences are dropped
// whole, of which PlainText would leave the parameters behind.
func clean(s string, max int) string { return restart.PlainText(withoutEscapes(s), max) }

func (t Text) paint(style, s string) string {
	if !t.Color || s == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// age words a time as an age: "5 hours ago".
func (t Text) age(at time.Time) string { return humanize.RelTime(at, t.Now, "ago", "from now") }

func (t Text) ageMS(ms int64) string { return t.age(time.UnixMilli(ms)) }

// rows are lines of a label and what it labels, in two columns.
type rows struct{ strings.Builder }

func (r *rows) add(label, format string, args ...any) {
	fmt.Fprintf(r, "%-13s%s\n", label, fmt.Sprintf(format, args...))
}

// Status renders the answer of `status`.
func (t Text) Status(st Status) string {
	var r rows
	s := st.Server
	r.add("server", "%s", t.serverLine(s))
	if s.Reason != "" {
		r.add("", "%s", clean(s.Reason, maxReason))
	}
	if s.Available != "" {
		when := "at the server's next start"
		if len(st.Sessions.Active) > 0 {
			when = "once nothing is active"
		}
		r.add("", "%s", t.paint(warn, fmt.Sprintf("opencode %s is in place, and is used %s", clean(s.Available, maxLine), when))+"; at once: intermission restart")
	}
	if s.NextAttempt != nil {
		r.add("", "next attempt %s", t.age(*s.NextAttempt))
	}
	if s.State != "running" && s.LastExit != nil {
		r.add("", "last exit: %s, %s", exitWords(*s.LastExit), t.age(s.LastExit.At))
		for _, line := range s.LastExit.Output {
			r.add("", "  %s", t.paint(faint, clean(line, maxLine)))
		}
	}
	r.add("supervisor", "pid %d, version %s, started %s", st.Supervisor.PID, clean(st.Supervisor.Version, maxLine), t.age(st.Supervisor.Since))
	if f := st.Supervisor.Fault; f != "" {
		r.add("", "%s", t.paint(bad, "starts no server: "+clean(f, maxReason))+"; mend that, and run: intermission service restart")
	}
	switch v := st.Supervisor.Available; {
	case v != "" && st.Supervisor.Waits != "":
		r.add("", "%s", t.paint(warn, fmt.Sprintf("intermission %s is in place, and can't be used yet: %s", clean(v, maxLine), clean(st.Supervisor.Waits, maxReason))))
	case v != "":
		r.add("", "%s", t.paint(warn, fmt.Sprintf("intermission %s is in place", clean(v, maxLine)))+"; to use it: intermission service restart")
	}
	waiting := t.waiting(st.Sessions.Pending)
	if st.Sessions.Unknown {
		waiting = t.paint(bad, "what waits for consent is not known")
	}
	r.add("sessions", "%d at work, %s", len(st.Sessions.Active), waiting)
	for i, w := range st.Sessions.Working {
		if i == maxWorking {
			r.add("", "and %d more", len(st.Sessions.Working)-i)
			break
		}
		r.add("", "%s", t.working(w))
	}
	return r.String()
}

// Suspended says after a stop how many sessions it suspended.
func (t Text) Suspended(n int) string {
	if n < 1 {
		return ""
	}
	return plural(n, "session was", "sessions were") + " at work, and suspended: see intermission pending\n"
}

// maxWorking is how many sessions at work get a line.
const maxWorking = 10

// working renders a session at work.
func (t Text) working(w Working) string {
	title := clean(w.Title, 60)
	if title == "" {
		title = "(none)"
	}
	line := fmt.Sprintf("%s  %s  for %s", t.paint(strong, clean(w.ID, maxLine)), title, span(t.since(w.StartedAt)))
	switch {
	case w.WaitingFor != "":
		line += ", " + t.paint(warn, "waits for a "+clean(w.WaitingFor, maxLine))
	case w.Quiet:
		line += ", " + t.paint(warn, "no progress for "+span(t.since(w.ProgressAt)))
	}
	return line
}

func (t Text) since(ms int64) time.Duration { return t.Now.Sub(time.UnixMilli(ms)) }

// span words a duration: "12 min". A clock that was set back makes none of it.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return plural(int(d.Hours()/24), "day", "days")
}

func (t Text) serverLine(s ServerStatus) string {
	style := map[string]string{"running": good, "stopped": faint, "failed": bad, "blocked": bad}[s.State]
	if style == "" {
		style = warn
	}
	line := t.paint(style, clean(s.State, maxLine))
	if s.Version != "" {
		line += fmt.Sprintf(", opencode %s (%s)", clean(s.Version, maxLine), clean(s.Generation, maxLine))
	}
	if s.PID != 0 {
		line += fmt.Sprintf(", pid %d", s.PID)
	}
	if s.URL != "" {
		line += ", " + clean(s.URL, maxLine)
	}
	if s.RSSBytes > 0 {
		line += ", " + humanize.IBytes(uint64(s.RSSBytes))
	}
	if s.Adopted {
		line += ", adopted"
	}
	if s.Restarts > 0 {
		line += ", restarted " + times(s.Restarts)
	}
	return line
}

func (t Text) waiting(n int) string {
	switch n {
	case 0:
		return "none waits for consent"
	case 1:
		return t.paint(warn, "1 waits for consent") + "; see: intermission pending"
	default:
		return t.paint(warn, fmt.Sprintf("%d wait for consent", n)) + "; see: intermission pending"
	}
}

func exitWords(e Exit) string {
	if e.Signal != "" {
		return "killed by " + clean(e.Signal, maxLine)
	}
	if e.Code < 0 {
		return "its exit status is not known"
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Pending renders the answer of `pending`, oldest first.
func (t Text) Pending(p Pending) string {
	if len(p.Pending) == 0 {
		return "Nothing waits for consent.\n"
	}
	var b strings.Builder
	if len(p.Pending) > manyPending {
		fmt.Fprintf(&b, "%d sessions wait for consent.\n\n", len(p.Pending))
		for _, s := range p.Pending {
			b.WriteString(t.line(s))
		}
		b.WriteString("\nlook at one: intermission show ID    resume it: intermission resume ID    say no: intermission dismiss ID\n")
		return b.String()
	}
	for i, s := range p.Pending {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.Suspension(s))
	}
	b.WriteString("\nresume one: intermission resume ID    say no: intermission dismiss ID\n")
	return b.String()
}

// manyPending is how many sessions are listed in full; more get a line each.
const manyPending = 10

// line renders a session among many.
func (t Text) line(s Suspension) string {
	title := clean(s.Title, 40)
	if title == "" {
		title = "(none)"
	}
	line := fmt.Sprintf("%s  %-14s  %s  %s", t.paint(strong, clean(s.ID, maxLine)), t.ageMS(s.SuspendedAt), title, t.paint(faint, clean(s.Directory, 60)))
	switch {
	case s.State != restart.StatePending && s.State != "":
		line += "  " + t.paint(warn, clean(stateWords(s.State), maxLine))
	case s.WaitingFor != "":
		line += "  " + t.paint(warn, "waits for a "+clean(s.WaitingFor, maxLine))
	case s.LastTool != nil && s.LastTool.Status == "running":
		line += "  " + t.paint(bad, clean(s.LastTool.Name, 20)+": outcome unknown")
	}
	return line + "\n"
}

// Suspension renders what a person sees before consenting.
func (t Text) Suspension(s Suspension) string {
	var b rows
	head := t.paint(strong, clean(s.ID, maxLine)) + "  " + causeWords(s.Cause) + " " + t.ageMS(s.SuspendedAt)
	if s.State != restart.StatePending && s.State != "" {
		head += "  " + t.paint(warn, clean(stateWords(s.State), maxLine))
	}
	fmt.Fprintln(&b, head)
	row := func(label, format string, args ...any) { b.add("  "+label, format, args...) }
	if s.Reason != "" {
		row("", "%s", t.paint(warn, clean(s.Reason, maxReason)))
	}
	title := clean(s.Title, maxLine)
	if title == "" {
		title = "(none)"
	}
	row("title", "%s", title)
	if s.Directory != "" {
		row("directory", "%s", clean(s.Directory, maxReason))
	}
	if p := s.LastPrompt; p != nil {
		row("you wrote", "%s  (%s)", clean(p.Text, maxLine), t.ageMS(p.At))
	}
	if tool := s.LastTool; tool != nil {
		if s.WaitingFor == "permission" && tool.Status == "running" {
			tool = &restart.Tool{Name: tool.Name, Input: tool.Input, Status: "not permitted yet"}
		}
		row("last tool", "%s", t.tool(*tool))
	}
	if s.WaitingFor != "" {
		row("waits for", "a %s", clean(s.WaitingFor, maxLine))
	}
	if len(s.Children) > 0 {
		row("subagents", "%s", clean(strings.Join(s.Children, ", "), maxReason))
	}
	for _, j := range s.Jobs {
		row("job", "%s (%s, %s)", clean(j.Text, maxLine), clean(j.Kind, maxLine), clean(j.Status, maxLine))
	}
	if s.Resumes > 0 {
		row("resumed", "%s already", times(s.Resumes))
	}
	if s.ClaimedAt > 0 {
		row("turn", "began %s; the server itself resumed it %s", t.ageMS(s.ClaimedAt), times(s.Attempts))
	}
	return b.String()
}

func (t Text) tool(tool restart.Tool) string {
	line := clean(tool.Name, maxLine)
	if in := clean(tool.Input, maxLine); in != "" {
		line += " " + in
	}
	switch tool.Status {
	case "completed":
		return line
	case "running":
		return line + "  " + t.paint(bad, "outcome unknown")
	default:
		return line + "  " + clean(tool.Status, maxLine)
	}
}

func causeWords(c restart.Cause) string {
	switch c {
	case restart.CauseShutdown:
		return "suspended by a stop"
	case restart.CauseCrash:
		return "suspended by a crash"
	case restart.CauseParked:
		return "found unfinished, suspended"
	default:
		return "suspended"
	}
}

func stateWords(s restart.State) string {
	switch s {
	case restart.StateElsewhere:
		return "runs elsewhere"
	case restart.StateUnknown:
		return "outcome of the last resume unknown"
	default:
		return string(s)
	}
}

// Detail renders the answer of `show`.
func (t Text) Detail(d Detail) string {
	var b rows
	b.WriteString(t.Suspension(d.Suspension))
	if at := time.UnixMilli(d.SuspendedAt).In(t.Now.Location()).Format(time.DateTime); d.Pending {
		b.add("  since", "%s  (--at %d)", at, d.SuspendedAt)
	} else {
		b.add("  since", "%s  %s", at, t.paint(faint, "no longer pending"))
	}
	if len(d.Journal) == 0 {
		return b.String()
	}
	b.WriteString("journal\n")
	for _, e := range d.Journal {
		line := fmt.Sprintf("  %s  %-10s %s", e.Time.In(t.Now.Location()).Format(time.DateTime), clean(e.What, maxLine), clean(e.Detail, maxLine))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// Result renders the answer of `resume`.
func (t Text) Result(r Result) string {
	words := map[string]string{
		"resumed": t.paint(good, "resumed"),
		"queued":  t.paint(warn, "queued") + ": it starts when a place is free",
		"already": "nothing was done",
		"refused": t.paint(bad, "refused"),
		"unknown": t.paint(bad, "unknown") + ": whether it was resumed can't be told",
	}[r.Outcome]
	if words == "" {
		words = clean(r.Outcome, maxLine)
	}
	line := clean(r.ID, maxLine) + "  " + words
	if r.Reason != "" {
		line += "\n  " + clean(r.Reason, maxReason)
	}
	return line + "\n"
}

// Dismissed renders the answer of `dismiss`.
func (t Text) Dismissed(d Dismissed) string {
	line := clean(d.ID, maxLine) + "  dismissed"
	if d.Dismissed > 1 {
		line += ", with " + plural(d.Dismissed-1, "subagent", "subagents")
	}
	return line + "; its history stays\n"
}

// Interrupted renders the answer of `interrupt`.
func (t Text) Interrupted(i Interrupted) string {
	return clean(i.ID, maxLine) + "  interrupted; nothing of it is suspended\n"
}

func times(n int) string { return plural(n, "time", "times") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// PlainLines gives a writer that sends lines to w as a terminal may be sent
// them: without escape sequences and control characters. A line without its end
// waits for it, up to 64 KiB.
func PlainLines(w io.Writer) io.Writer {
	return &lines{w: w, show: func(line string) string { return clean(line, maxLogLine) }}
}

// JSONLines is like PlainLines, and makes each line {"line":"…"}.
func JSONLines(w io.Writer) io.Writer {
	return &lines{w: w, show: func(line string) string {
		b, _ := json.Marshal(struct { // a string always can be
			Line string `json:"line"`
		}{line})
		return EscapeUnseen(string(b))
	}}
}

const (
	maxHeld    = 64 << 10 // bytes of a line that waits for its end
	maxLogLine = 8 << 10  // graphemes of a line that is shown
)

type lines struct {
	w    io.Writer
	show func(line string) string
	held []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.held = append(l.held, b...)
	for {
		end, rest := bytes.IndexByte(l.held, '\n'), 1
		if end < 0 && len(l.held) > maxHeld {
			end, rest = maxHeld, 0
		}
		if end < 0 {
			return len(b), nil
		}
		line := l.show(string(l.held[:end]))
		l.held = l.held[end+rest:]
		if _, err := io.WriteString(l.w, line+"\n"); err != nil {
			return 0, err
		}
	}
}

// withoutEscapes drops ECMA-48 control sequences: colours, cursor movements.
func withoutEscapes(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		final := strings.IndexFunc(after, func(r rune) bool { return r >= '@' && r <= '~' })
		if final < 0 {
			return b.String()
		}
		s = after[final+1:]
	}
}
