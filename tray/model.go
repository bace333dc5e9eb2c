package tray

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/assets"
	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

const (
	inMenu   = 10 // pending sessions in the first submenu; the rest is in "More"
	inMore   = 40 // sessions that stand there
	maxJobs  = 3  // background jobs that are listed of a session
	maxBusy  = 10 // active sessions that are listed
	appTitle = "Intermission"
)

// Model shows a state. The items of the menu itself are always the same ones, in
// the same order, some hidden; only submenus differ in what they hold. next is
// when it would look different by time alone, zero for never.
func Model(s State) (m Menu, next time.Time) {
	v := view{State: s, clock: clock{now: s.Now}}
	if s.Link == Linked {
		v.server, v.sessions = s.Snapshot.Status.Server, s.Snapshot.Status.Sessions
	}
	if s.Message != "" {
		v.until(s.said.Add(messageStays))
	}
	m.Icon, m.Tooltip = v.icon(), v.tooltip()
	m.Title = m.Tooltip
	if platform.TitleBesideIcon { // there is room for a number
		m.Title = ""
		if n := v.sessions.Pending; n > 0 {
			m.Title = strconv.Itoa(n)
		}
	}
	m.Items = slices.Concat(v.header(), v.pendingItems(), v.activeItems(), v.serverItems(), v.ownItems())
	return m, v.next
}

// view is a state on its way to a menu.
type view struct {
	State
	clock
	server   control.ServerStatus
	sessions control.SessionStatus
}

// running says that the server can be asked for something.
func (v *view) running() bool { return v.Link == Linked && v.server.State == "running" }

func (v *view) icon() assets.Icon {
	switch {
	case v.Link != Linked:
		return assets.Absent
	case v.server.State == "failed" || v.server.State == "blocked":
		return assets.Failed
	case !v.running():
		return assets.Stopped
	case v.sessions.Pending > 0:
		return assets.Pending
	case len(v.sessions.Active) > 0:
		return assets.Working
	}
	return assets.Running
}

func (v *view) tooltip() string {
	parts := []string{v.headline()}
	if n := v.sessions.Pending; n > 0 {
		parts = append(parts, count(n, "session pending", "sessions pending"))
	}
	if n := len(v.sessions.Active); n > 0 {
		parts = append(parts, fmt.Sprintf("%d at work", n))
	}
	return appTitle + ": " + strings.Join(parts, ", ")
}

// headline words the server's state.
func (v *view) headline() string {
	switch v.Link {
	case Connecting:
		return "looking for the supervisor"
	case Absent:
		return "no supervisor is running"
	case Broken:
		return "the supervisor can't be understood"
	}
	name := "OpenCode"
	if v.server.Version != "" {
		name += " " + restart.PlainText(v.server.Version, 20)
	}
	words, known := map[string]string{
		"running": "is running", "starting": "is starting", "stopping": "is stopping", "stopped": "is stopped",
		"backoff": "ended unexpectedly, and is started again", "failed": "failed, and is not started again",
		"blocked": "is not started, to keep its sessions suspended",
	}[v.server.State]
	if !known {
		words = "is " + restart.PlainText(v.server.State, 20)
	}
	return name + " " + words
}

func line(key, title string) Item {
	return Item{Key: key, Title: title, Disabled: true, Hidden: title == ""}
}

func separator(key string) Item { return Item{Key: key, Separator: true} }

func (v *view) header() []Item {
	reason, version := "", ""
	switch {
	case v.Link == Broken:
		reason = v.Fault
	case v.Link == Linked: // also of a stop that was refused
		reason = v.server.Reason
	}
	switch own := v.Snapshot.Status.Supervisor; {
	case v.Link != Linked:
	case own.Fault != "":
		version = "No server is started: " + restart.PlainText(own.Fault, maxReason)
	case own.Waits != "":
		version = fmt.Sprintf("Intermission %s runs, %s is installed, and can't be used yet: %s", restart.PlainText(own.Version, 20), restart.PlainText(own.Available, 20), restart.PlainText(own.Waits, maxReason))
	case own.Available != "":
		version = fmt.Sprintf("Intermission %s runs, %s is installed; to use it: intermission service restart", restart.PlainText(own.Version, 20), restart.PlainText(own.Available, 20))
	case own.Version != v.Version:
		version = fmt.Sprintf("The supervisor is version %s, this tray %s: restart the older one", restart.PlainText(own.Version, 20), v.Version)
	}
	h := v.headline()
	items := []Item{line("state", strings.ToUpper(h[:1])+h[1:])}
	items = append(items, lines("reason", reason)...)
	items = append(items, line("version", version))
	items = append(items, lines("config", v.ConfigFault)...)
	items = append(items, lines("message", v.Message)...)
	return append(items, separator("1"))
}

// lines are the fixed lines of a text that may be long; what to do stands at its end.
func lines(key, text string) []Item {
	var items []Item
	for i, l := range wrap(text, maxReason, 3) {
		items = append(items, line(key+strconv.Itoa(i), l))
	}
	return items
}

func (v *view) pendingItems() []Item {
	none := line("none", "")
	switch {
	case v.Link != Linked:
		none = line("none", "What is pending is not known")
	case v.sessions.Unknown:
		none = line("none", "What is pending can't be read")
	case len(v.Snapshot.Pending) == 0:
		none = line("none", "No session is pending")
	}
	list := slices.Clone(v.Snapshot.Pending)
	slices.SortStableFunc(list, func(a, b control.Suspension) int { return cmp.Compare(b.SuspendedAt, a.SuspendedAt) })
	pending := Item{
		Key: "pending", Title: fmt.Sprintf("Pending (%d)", v.sessions.Pending),
		Submenu: true, Hidden: v.Link != Linked || len(list) == 0,
	}
	if v.sessions.Pending == 0 {
		pending.Title = fmt.Sprintf("Being resumed (%d)", len(list))
	}
	for _, p := range list[:min(len(list), inMenu)] {
		pending.Items = append(pending.Items, v.suspension(p))
	}
	return []Item{none, pending, v.more(list[min(len(list), inMenu):])}
}

// more holds what there is no room for. The oldest comes first, as in the command's
// list: what is moved here goes to the end, and nothing has to be made anew.
func (v *view) more(list []control.Suspension) Item {
	more := Item{Key: "more", Title: fmt.Sprintf("More: the older %d of them", len(list)), Submenu: true, Hidden: v.Link != Linked || len(list) == 0}
	for _, p := range slices.Backward(list[:min(len(list), inMore)]) {
		more.Items = append(more.Items, v.suspension(p))
	}
	if n := len(list) - inMore; n > 0 {
		more.Items = append(more.Items, line("rest", fmt.Sprintf("%d older ones: intermission pending", n)))
	}
	return more
}

// suspension is the submenu of a session: what a person sees before consenting, then the acts.
func (v *view) suspension(p control.Suspension) Item {
	title := titleOf(p.Title, p.ID)
	if p.Directory != "" {
		title += "  ·  " + shortDir(p.Directory, v.Home)
	}
	if age := v.age(p.SuspendedAt); age != "" {
		title += "  ·  " + age
	}
	item := Item{Key: p.ID + "@" + strconv.FormatInt(p.SuspendedAt, 10), Title: title, Submenu: true}
	say := func(format string, args ...any) {
		item.Items = append(item.Items, Item{Title: fmt.Sprintf(format, args...), Disabled: true})
	}
	say("Suspended %s: %s", v.ago(p.SuspendedAt), causeWords(p.Cause))
	if p.State == restart.StateUnknown {
		say("Whether it was resumed can't be known: %s", sentence(cmp.Or(p.Reason, "look at it first")))
	}
	v.details(p, say)
	item.Items = append(item.Items, v.suspensionActs(p)...)
	return item
}

func (v *view) details(p control.Suspension, say func(string, ...any)) {
	if l := p.LastPrompt; l != nil {
		say("You wrote %s: %s", v.ago(l.At), quote(l.Text))
	}
	if p.LastTool != nil {
		say("%s", toolWords(p))
	}
	if p.WaitingFor != "" {
		say("%s", waitWords(p.WaitingFor))
	}
	if n := len(p.Children); n > 0 {
		say("%s under it", count(n, "subagent waits", "subagents wait"))
	}
	for i, j := range p.Jobs {
		if i == maxJobs {
			say("… and %s", count(len(p.Jobs)-i, "more background job", "more background jobs"))
			break
		}
		say("Background %s, %s: %s", restart.PlainText(j.Kind, 20), restart.PlainText(j.Status, 20), quote(j.Text))
	}
	if p.Resumes > 0 {
		say("Resumed %s before", count(p.Resumes, "time", "times"))
	}
}

// waitWords words what a session waits for: a permission, or the answer to a question.
func waitWords(what string) string {
	if what == "question" {
		return "It waits for your answer to a question"
	}
	return "It waits for your " + restart.PlainText(what, 20)
}

// toolWords words the last tool. One in flight may have had its effects or not.
func toolWords(p control.Suspension) string {
	t := p.LastTool
	words := fmt.Sprintf("Last tool: %s %s", restart.PlainText(t.Name, 20), quote(t.Input))
	switch {
	case t.Status == "running" && p.WaitingFor == "permission":
		return words // the next line says so
	case t.Status == "running":
		return words + ", outcome unknown"
	case t.Status == "error":
		return words + ", failed"
	}
	return words
}

func (v *view) suspensionActs(p control.Suspension) []Item {
	resume := act(Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}, "Resume session")
	dismiss := act(Action{Verb: Dismiss, Session: p.ID, At: p.SuspendedAt, Shown: strings.Join(p.Children, " ")}, "Dismiss")
	no := func(why string) { resume.Title, resume.Disabled = why, true }
	switch {
	case v.busy(resume.Action) || p.State == restart.StateResuming:
		no("Resuming…")
	case p.State == restart.StateQueued:
		no("It waits for its turn: others are at work")
	case p.State != restart.StatePending && p.State != restart.StateUnknown:
		no("Can't be resumed: " + sentence(cmp.Or(p.Reason, string(p.State))))
	}
	if n := len(p.Children); n > 0 {
		dismiss.Title = "Dismiss, with " + count(n, "subagent", "subagents")
	}
	dismiss.Disabled = v.busy(dismiss.Action) || v.busy(resume.Action) || p.State == restart.StateResuming || p.State == restart.StateQueued
	return []Item{resume, dismiss, act(Action{Verb: CopyID, Session: p.ID}, "Copy session ID"), v.open(p.ID)}
}

func act(a Action, title string) Item { return Item{Title: title, Action: a} }

func (v *view) open(id string) Item {
	i := act(Action{Verb: Open, Session: id}, "Open in terminal")
	i.Disabled = !v.running()
	return i
}

func (v *view) activeItems() []Item {
	n := len(v.sessions.Active)
	active := Item{Key: "active", Title: fmt.Sprintf("At work (%d)", n), Submenu: true, Hidden: n == 0}
	for i, w := range v.sessions.Working {
		if i == maxBusy {
			active.Items = append(active.Items, line("rest", fmt.Sprintf("and %d more: intermission status", len(v.sessions.Working)-i)))
			break
		}
		active.Items = append(active.Items, v.working(w))
	}
	return []Item{active, separator("2")}
}

func (v *view) working(w control.Working) Item {
	title := titleOf(w.Title, w.ID)
	progress := "Last progress less than a minute ago"
	switch silent := v.silence(w); {
	case w.WaitingFor != "":
		progress = waitWords(w.WaitingFor)
		title += "  ·  waits for you"
	case silent != "":
		progress = "Last progress " + silent + " ago"
		title += "  ·  no progress for " + silent
	}
	if v.stalled(w) {
		title = "⚠ " + title
	}
	item := Item{Key: w.ID + "@" + strconv.FormatInt(w.StartedAt, 10), Title: title, Submenu: true}
	for _, text := range []string{shortDir(w.Directory, v.Home), "At work since " + v.since(w.StartedAt), progress} {
		if text != "" {
			item.Items = append(item.Items, Item{Title: text, Disabled: true})
		}
	}
	interrupt := act(Action{Verb: Interrupt, Session: w.ID, At: w.StartedAt}, "Interrupt")
	if v.busy(interrupt.Action) {
		interrupt.Title, interrupt.Disabled = "Interrupting…", true
	}
	item.Items = append(item.Items, interrupt, act(Action{Verb: CopyID, Session: w.ID}, "Copy session ID"), v.open(w.ID))
	return item
}

// silence words how long a session has done nothing; "" when it is busy, or just fell
// silent. Of one that is busy the supervisor tells nothing, so that its ProgressAt is old.
func (v *view) silence(w control.Working) string {
	if !w.Quiet {
		return ""
	}
	return v.age(w.ProgressAt)
}

// since words a time of today by the clock, another by its day too.
func (v *view) since(ms int64) string {
	at := time.UnixMilli(ms).In(v.now.Location())
	if at.YearDay() == v.now.YearDay() && at.Year() == v.now.Year() {
		return at.Format("15:04")
	}
	return at.Format("2 Jan 15:04")
}

// stalled says that a session shows no progress for so long that a person should
// look. One that waits for its user does what it should.
func (v *view) stalled(w control.Working) bool {
	if !w.Quiet || w.WaitingFor != "" || v.StallAfter <= 0 {
		return false
	}
	at := time.UnixMilli(w.ProgressAt).Add(v.StallAfter)
	v.until(at)
	return !v.now.Before(at)
}

func (v *view) serverItems() []Item {
	active := slices.Clone(v.sessions.Active)
	slices.Sort(active)
	n := len(active)
	shown := strings.Join(active, " ")
	up := slices.Contains([]string{"running", "starting", "backoff"}, v.server.State)
	down := v.Link == Linked && slices.Contains([]string{"stopped", "failed", "blocked", "backoff"}, v.server.State)
	busy := v.Under[Action{Verb: StartServer}] || v.changing()
	hide := func(i Item, unless bool) Item {
		i.Hidden = !unless
		i.Disabled = busy
		return i
	}
	ask := func(key string, verb Verb, what string) Item {
		sure := act(Action{Verb: verb, Shown: shown}, fmt.Sprintf("Yes, suspend %s and %s", count(n, "session", "sessions"), string(verb)))
		return Item{
			Key: key, Title: fmt.Sprintf("%s: %s", what, count(n, "session will be suspended", "sessions will be suspended")),
			Submenu: true, Hidden: !up || n == 0 || busy, Items: []Item{sure},
		}
	}
	newer := ""
	if up && v.server.Available != "" {
		newer = fmt.Sprintf("OpenCode %s is installed; restart to use it", restart.PlainText(v.server.Available, 20))
	}
	return []Item{
		line("available", newer),
		hide(act(Action{Verb: StartServer}, "Start server"), down),
		hide(act(Action{Verb: StopServer}, "Stop server"), up && n == 0),
		ask("stop", StopServer, "Stop server"),
		hide(act(Action{Verb: RestartServer}, "Restart server"), up && n == 0),
		ask("restart", RestartServer, "Restart server"),
		{Title: "Start supervisor", Action: Action{Verb: StartSupervisor}, Hidden: v.Link != Absent || !v.Installed, Disabled: v.Under[Action{Verb: StartSupervisor}]},
		{Title: "Set up: start the supervisor now, and both at login", Action: Action{Verb: SetUp}, Hidden: v.Link != Absent || v.Installed || !v.LoginSeen, Disabled: v.Under[Action{Verb: SetUp}]},
		separator("3"),
	}
}

func (v *view) ownItems() []Item {
	login := func(verb Verb, on bool) Item {
		return Item{
			Title: "Start at login", Action: Action{Verb: verb}, Checkable: true, Checked: on,
			Hidden: !v.LoginSeen && on || v.LoginSeen && v.Login != on, Disabled: !v.LoginSeen,
		}
	}
	return []Item{
		act(Action{Verb: OpenLog}, "Open log"),
		login(LoginOn, false),
		login(LoginOff, true),
		separator("4"),
		act(Action{Verb: Quit}, "Quit tray (the server goes on)"),
	}
}
