package tray

import (
	"intermission/assets"
)

// Menu is all that the tray shows, as a value. Two equal menus look the same.
type Menu struct {
	Icon    assets.Icon
	Title   string // what the icon stands for, with the counts; for people who can't see it
	Tooltip string
	Items   []Item
}

// Item is one line of a menu. Its titles are plain text: how a system marks
// mnemonics is the renderer's business.
type Item struct {
	// Key tells items apart that have no action: a session's submenu is another
	// item than the next session's, whatever its title.
	Key       string
	Title     string
	Disabled  bool
	Hidden    bool
	Checkable bool
	Checked   bool
	Separator bool
	Submenu   bool   // has Items, at times none
	Action    Action // of a disabled item: what a click asked for if it weren't
	Items     []Item
}

// Verb is what a click asks for.
type Verb string

// The verbs. Every one that changes something is also a command.
const (
	Resume          Verb = "resume"
	Dismiss         Verb = "dismiss"
	Interrupt       Verb = "interrupt"
	CopyID          Verb = "copy"
	Open            Verb = "open"
	StartServer     Verb = "start"
	StopServer      Verb = "stop"
	RestartServer   Verb = "restart"
	StartSupervisor Verb = "supervise"
	SetUp           Verb = "set up"
	OpenLog         Verb = "log"
	LoginOn         Verb = "login on"
	LoginOff        Verb = "login off"
	Quit            Verb = "quit"
)

// Action is what a click carries: a value that doesn't change while its item
// lives, so that a click on what was shown never means what is shown now. The
// zero Action is no action.
type Action struct {
	Verb    Verb
	Session string
	At      int64  // Unix ms: the suspension's time; for Interrupt, the execution's start
	Shown   string // StopServer, RestartServer, Dismiss: which other sessions the person was told it is about
}

// Offers tells whether a click with that action still means something: an enabled,
// visible item has it now.
func (m Menu) Offers(a Action) bool { return a != Action{} && offers(m.Items, a) }

func offers(items []Item, a Action) bool {
	for _, i := range items {
		if i.Hidden || i.Disabled && !i.Submenu {
			continue
		}
		if i.Action == a || offers(i.Items, a) {
			return true
		}
	}
	return false
}
