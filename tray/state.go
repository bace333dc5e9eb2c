package tray

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// Link is how the tray stands with the supervisor.
type Link int

// The links.
const (
	Connecting Link = iota // nothing is known yet
	Absent                 // no supervisor runs
	Broken                 // one runs, but can't be understood; State.Fault says why
	Linked                 // State.Snapshot is what it says
)

// State is all that the tray knows. Reduce makes the next one; Model shows it.
type State struct {
	Options
	Now      time.Time
	Link     Link
	Fault    string
	Snapshot control.Snapshot

	Under   map[Action]bool // acts under way
	Message string          // what came of the last act, when it isn't plain to see
	said    time.Time       // when Message was set
	about   Action          // what Message is about

	recent []Done // the latest acts that have ended, at most maxRecent

	Login     bool // the tray starts at login
	LoginSeen bool // Login is known
	Installed bool // a supervisor was set up for this user

	notices notices
}

// Options is what a tray is set up with.
type Options struct {
	Version    string
	Home       string // home directory, by which directories are shortened
	Notify     bool
	Quiet      []QuietHours
	StallAfter time.Duration // a session without progress for so long is stalled

	ConfigFault string // what is wrong with the configuration, which isn't used then
}

// QuietHours is a daily time without notifications, in minutes since midnight,
// local time. From is included, To is not; a To before From is on the next day.
type QuietHours struct{ From, To int }

// Input is something that happened. One field is set beside At; none is a timer, or a wake.
type Input struct {
	At       time.Time
	Snapshot *control.Snapshot // the supervisor's state has changed
	Lost     *Loss             // the supervisor can't be heard
	Click    *Action
	Done     *Done // an act has ended
	Entries  *Entries
}

// Loss says why the supervisor can't be heard.
type Loss struct {
	Absent bool // none runs
	Reason string
}

// Done is what came of an act.
type Done struct {
	Action  Action
	Outcome string // of a resume, by the contract; "set up" of SetUp; else ""
	Reason  string // why it wasn't done, "" when it was; with an outcome what else there is to say
}

// Entries is what the system has about our start at login.
type Entries struct {
	Login     bool // the tray's entry is there, and on
	Installed bool // the supervisor's service is
}

// Effect is something to do. One field is set.
type Effect struct {
	Do     *Action
	Notice *platform.Notice
}

// messageStays is how long the outcome of an act stays in the menu.
const messageStays = 5 * time.Minute

// maxRecent bounds State.recent. The supervisor tells of an outcome at about the time it answers.
const maxRecent = 16

// answers says that the answer to a click of this tray tells of that outcome, has or will.
func (s State) answers(o control.Outcome) bool {
	a := Action{Verb: Resume, Session: o.ID, At: o.SuspendedAt}
	return (o.What == "refused" || o.What == "unknown") && (s.Under[a] || s.ended(a, func(d Done) bool { return d.Reason != "" && d.Outcome != "resumed" }))
}

// ended says that an act has ended lately, in such a way.
func (s State) ended(a Action, how func(Done) bool) bool {
	return slices.ContainsFunc(s.recent, func(d Done) bool { return d.Action == a && how(d) })
}

// Reduce gives the state after in, and what is to be done. It is pure, and leaves s as it was.
func Reduce(s State, in Input) (State, []Effect) {
	s.Now = in.At
	var effects []Effect
	switch {
	case in.Snapshot != nil:
		s.Link, s.Fault, s.Snapshot = Linked, "", *in.Snapshot
		s.notices = s.notices.observe(s)
	case in.Lost != nil:
		s.Link, s.Fault, s.Snapshot = Broken, in.Lost.Reason, control.Snapshot{}
		if in.Lost.Absent {
			s.Link = Absent
		}
	case in.Click != nil:
		menu, _ := Model(s)
		if !menu.Offers(*in.Click) || s.busy(*in.Click) {
			break // it was shown, and isn't any more; or it is being done
		}
		s.Message = ""
		s.Under = maps.Clone(s.Under)
		if s.Under == nil {
			s.Under = map[Action]bool{}
		}
		s.Under[*in.Click] = true
		effects = append(effects, Effect{Do: in.Click})
	case in.Done != nil:
		s.Under = maps.Clone(s.Under)
		delete(s.Under, in.Done.Action)
		s.recent = append(slices.Clone(s.recent[max(0, len(s.recent)-maxRecent+1):]), *in.Done)
		s = s.done(*in.Done)
	case in.Entries != nil:
		s.Login, s.Installed, s.LoginSeen = in.Entries.Login, in.Entries.Installed, true
	}
	if s.Message != "" && (!s.Now.Before(s.said.Add(messageStays)) || s.outdated()) {
		s.Message = ""
	}
	s.notices, effects = s.notices.send(s, effects)
	return s, effects
}

// changing says that a stop or a restart that was clicked here is under way.
func (s State) changing() bool {
	for a := range s.Under {
		if a.Verb == StopServer || a.Verb == RestartServer {
			return true
		}
	}
	return false
}

// outdated says that Message is about a suspension that is none any more.
func (s State) outdated() bool {
	a := s.about
	return s.Link == Linked && a.Verb == Resume && !slices.ContainsFunc(s.Snapshot.Pending, func(p control.Suspension) bool {
		return p.ID == a.Session && p.SuspendedAt == a.At
	})
}

// busy says that an act is under way, or was done and can't be done again: the
// supervisor's word of it may come after the answer, and until then the menu would
// offer it still.
func (s State) busy(a Action) bool {
	return s.Under[a] || a.At != 0 && s.ended(a, func(d Done) bool { return d.Reason == "" })
}

// done tells of an act that didn't come out as it was meant.
func (s State) done(d Done) State {
	if d.Reason == "" {
		return s
	}
	name := s.sessionName(d.Action.Session)
	s.said, s.about = s.Now, d.Action
	if d.Outcome == "resumed" {
		s.about = Action{} // it isn't pending, and that is right
	}
	s.Message = restart.PlainText(s.doneWords(d, name), 3*maxReason)
	// Of one that ended at once the supervisor tells; one that is queued stands in the menu.
	if d.Outcome != "resumed" && d.Outcome != "queued" && d.Outcome != "set up" {
		s.notices = s.notices.add(kindAct, item{id: d.Action.Session, at: d.Action.At, what: cmp.Or(d.Outcome, string(d.Action.Verb)), body: s.Message, now: true})
	}
	return s
}

func (s State) doneWords(d Done, name string) string {
	switch d.Outcome {
	case "resumed":
		return fmt.Sprintf("%s was resumed, and %s", name, d.Reason)
	case "set up":
		return "The supervisor is set up. " + d.Reason
	case "queued":
		return fmt.Sprintf("%s waits for its turn: %s", name, d.Reason)
	case "already":
		return fmt.Sprintf("%s was not resumed again: %s", name, d.Reason)
	case "refused":
		return fmt.Sprintf("%s was not resumed: %s", name, d.Reason)
	case "unknown":
		return fmt.Sprintf("Whether %s goes on is not known: %s", name, d.Reason)
	}
	what := map[Verb]string{
		Dismiss: name + " was not dismissed", Interrupt: name + " was not interrupted", Resume: name + " was not resumed",
		CopyID: "The session ID was not copied", Open: name + " was not opened", OpenLog: "The log was not opened",
		StartServer: "The server was not started", StopServer: "The server was not stopped", RestartServer: "The server was not restarted",
		StartSupervisor: "The supervisor was not started", SetUp: "The supervisor was not set up",
		LoginOn: "Start at login was not switched on", LoginOff: "Start at login was not switched off",
	}[d.Action.Verb]
	return what + ": " + d.Reason
}

// sessionName names a session of the snapshot for a sentence.
func (s State) sessionName(id string) string {
	for _, p := range s.Snapshot.Pending {
		if p.ID == id {
			return quote(titleOf(p.Title, id))
		}
	}
	for _, w := range s.Snapshot.Status.Sessions.Working {
		if w.ID == id {
			return quote(titleOf(w.Title, id))
		}
	}
	return restart.PlainText(id, maxTitle)
}
