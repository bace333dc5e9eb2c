package tray

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
	"intermission/supervisor/control"
)

var update = flag.Bool("update", false, "write the golden files anew")

// noon is when the tests happen.
var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return noon.Add(-d).UnixMilli() }

// linked is a state in which the supervisor says snap.
func linked(snap control.Snapshot) State {
	snap.Status.Supervisor.Version = "1.0"
	return State{
		Options: Options{Version: "1.0", Home: "/home/ada", Notify: true, StallAfter: 30 * time.Minute},
		Now:     noon, Link: Linked, Snapshot: snap, LoginSeen: true, Installed: true,
	}
}

func running() control.Snapshot {
	return control.Snapshot{Status: control.Status{Server: control.ServerStatus{State: "running", Desired: "running", Version: "1.18.33", Generation: "v1"}}}
}

func with(snap control.Snapshot, list ...control.Suspension) control.Snapshot {
	snap.Pending = list
	for _, p := range list {
		if p.State != restart.StateQueued && p.State != restart.StateResuming {
			snap.Status.Sessions.Pending++
		}
	}
	return snap
}

func at(snap control.Snapshot, state, reason string) control.Snapshot {
	snap.Status.Server.State, snap.Status.Server.Reason = state, reason
	return snap
}

func working(snap control.Snapshot, list ...control.Working) control.Snapshot {
	snap.Status.Sessions.Working = list
	for _, w := range list {
		snap.Status.Sessions.Active = append(snap.Status.Sessions.Active, w.ID)
	}
	return snap
}

// login is a session with everything that a menu can tell.
func login() control.Suspension {
	return control.Suspension{
		ID: "ses_login", Title: "Fix the login", Directory: "/home/ada/src/web/app", SuspendedAt: ago(5 * time.Hour),
		Cause: restart.CauseCrash, State: restart.StatePending,
		LastPrompt: &restart.Prompt{Text: "make it work\nplease", At: ago(6 * time.Hour)},
		LastTool:   &restart.Tool{Name: "bash", Input: "rm -rf build", Status: "running"},
		WaitingFor: "question", Children: []string{"ses_c1", "ses_c2"},
		Jobs:    []control.Job{{Kind: "shell", Text: "npm run dev", Status: "running"}},
		Resumes: 2,
	}
}

func many(n int) []control.Suspension {
	var list []control.Suspension
	for i := range n {
		list = append(list, control.Suspension{
			ID: fmt.Sprintf("ses_%02d", i), Title: fmt.Sprintf("Session %d", i), Directory: "/srv/x",
			SuspendedAt: ago(time.Duration(n-i) * time.Hour), Cause: restart.CauseShutdown, State: restart.StatePending,
		})
	}
	return list
}

func stateOf(id string, st restart.State, reason string) control.Suspension {
	return control.Suspension{ID: id, Title: id, SuspendedAt: ago(90 * time.Minute), Cause: restart.CauseParked, State: st, Reason: reason}
}

// drawn is a menu as a person sees it: hidden items are left out.
func drawn(m Menu) string {
	var b strings.Builder
	fmt.Fprintf(&b, "icon %s\ntooltip %s\n\n", m.Icon, m.Tooltip)
	drawItems(&b, "", m.Items)
	return b.String()
}

func drawItems(b *strings.Builder, indent string, items []Item) {
	for _, i := range items {
		if i.Hidden {
			continue
		}
		mark := "  "
		switch {
		case i.Separator:
			fmt.Fprintf(b, "%s-----\n", indent)
			continue
		case i.Submenu:
			mark = "> "
		case i.Checkable && i.Checked:
			mark = "x "
		case i.Checkable:
			mark = "o "
		case !i.Disabled && i.Action != (Action{}):
			mark = "* "
		}
		fmt.Fprintf(b, "%s%s%s\n", indent, mark, i.Title)
		drawItems(b, indent+"    ", i.Items)
	}
}

// TestModel holds what a person sees of each state to testdata/NAME.txt:
// * can be clicked, > holds a submenu, x and o are check marks, the rest is text.
func TestModel(t *testing.T) {
	t.Parallel()
	under := func(s State, acts ...Action) State {
		s.Under = map[Action]bool{}
		for _, a := range acts {
			s.Under[a] = true
		}
		return s
	}
	evil := login()
	evil.Title = "rm_x && <b>y</b>\n\u202eright-to-left 🎉"
	evil.Directory = "/tmp/a\x1b[31mb/\u202ecde"
	evil.LastTool = &restart.Tool{Name: "bash\n", Input: "echo \x1b]0;x\x07 hi & bye", Status: "error"}
	other := linked(running())
	other.Version = "1.1"
	newer := linked(working(running(), control.Working{ID: "ses_n", Title: "Write tests", StartedAt: ago(time.Minute)}))
	newer.Snapshot.Status.Server.Available, newer.Snapshot.Status.Supervisor.Available = "1.19.0", "1.1\u202e"
	message := linked(running())
	message.Message, message.said = "“Fix the login” was not resumed: its directory is gone", noon
	silent := control.Working{ID: "ses_s", Title: "Wait for the provider", Directory: "/home/ada/src", StartedAt: ago(26 * time.Hour), ProgressAt: ago(5 * time.Hour), Quiet: true}
	asks := control.Working{ID: "ses_a", Title: "Tidy up", StartedAt: ago(time.Hour), ProgressAt: ago(time.Hour), Quiet: true, WaitingFor: "permission"}
	busy := control.Working{ID: "ses_w", Title: "Write tests", Directory: "/home/ada/src", StartedAt: ago(12 * time.Minute), ProgressAt: ago(20 * time.Second)}
	for name, s := range map[string]State{
		"connecting":    {Options: Options{Version: "1.0"}, Now: noon},
		"misconfigured": {Options: Options{Version: "1.0", ConfigFault: "/home/ada/.config/intermission/config.toml:3: stall_after: \"soon\" is not a duration like \"30m\""}, Now: noon, Link: Absent, LoginSeen: true},
		"absent":        {Options: Options{Version: "1.0"}, Now: noon, Link: Absent, LoginSeen: true, Installed: true, Login: true},
		"not_set_up":    {Options: Options{Version: "1.0"}, Now: noon, Link: Absent, LoginSeen: true},
		"broken":        {Options: Options{Version: "1.0"}, Now: noon, Link: Broken, Fault: "cannot read an event of the supervisor: no such call", LoginSeen: true},
		"running":       linked(running()),
		"stopped":       linked(at(with(running(), stateOf("ses_a", restart.StateBlocked, "the server is down")), "stopped", "")),
		"starting":      linked(at(running(), "starting", "")),
		"backoff":       linked(at(running(), "backoff", "the server was ended by signal SIGSEGV; it wrote nothing")),
		"failed":        linked(at(running(), "failed", "gave up after 5 deaths in 5 minutes; the last: the server exited with status 1; it last wrote: Error: Failed to start server. Is port 4096 in use? What it wrote is in the log: intermission logs")),
		"blocked":       linked(at(running(), "blocked", "the ledger can't be written: no space left on device")),
		"pending":       linked(with(running(), login())),
		"hostile":       linked(with(running(), evil)),
		"fifty":         linked(with(running(), many(60)...)),
		"working":       linked(working(running(), busy)),
		"stalled":       linked(working(running(), silent, asks, busy)),
		"states":        linked(with(running(), stateOf("ses_q", restart.StateQueued, ""), stateOf("ses_r", restart.StateResuming, ""), stateOf("ses_e", restart.StateElsewhere, "it runs in another OpenCode server"), stateOf("ses_b", restart.StateBlocked, "its directory is gone: /x"), stateOf("ses_u", restart.StateUnknown, ""))),
		"clicked":       under(linked(with(running(), stateOf("ses_a", restart.StatePending, ""))), Action{Verb: Resume, Session: "ses_a", At: ago(90 * time.Minute)}),
		"all_resumed":   linked(with(running(), stateOf("ses_r", restart.StateResuming, ""))),
		"restarting":    under(linked(working(running(), busy)), Action{Verb: RestartServer, Shown: "ses_w"}),
		"versions":      other,
		"installed":     newer,
		"message":       message,
		"unreadable":    linked(control.Snapshot{Status: control.Status{Server: control.ServerStatus{State: "blocked", Reason: "the ledger is not open"}, Sessions: control.SessionStatus{Unknown: true}}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := Model(s)
			path := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(drawn(m)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), drawn(m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestModelKeepsItsItems: the items of the menu itself are the same in every
// state, so that none must ever be removed, and an action of theirs never changes.
func TestModelKeepsItsItems(t *testing.T) {
	t.Parallel()
	first, _ := Model(State{})
	for _, s := range []State{
		{Link: Absent}, {Link: Broken}, {Link: Absent, LoginSeen: true}, {Link: Absent, LoginSeen: true, Login: true, Installed: true},
		linked(running()), linked(with(running(), many(60)...)), linked(at(running(), "failed", "x")),
		linked(working(running(), control.Working{ID: "a"})), linked(at(running(), "stopped", "")),
	} {
		m, _ := Model(s)
		if len(m.Items) != len(first.Items) {
			t.Fatalf("%d items, at first %d", len(m.Items), len(first.Items))
		}
		for i := range m.Items {
			if !sameItem(first.Items[i], m.Items[i]) {
				t.Errorf("item %d is %+v, at first %+v", i, m.Items[i], first.Items[i])
			}
		}
	}
}

// TestModelTellsWhenItChanges: nothing differs before next, and something does then.
func TestModelTellsWhenItChanges(t *testing.T) {
	t.Parallel()
	for _, old := range []time.Duration{0, 30 * time.Second, 3 * time.Minute, 27 * time.Minute, 3*time.Hour + time.Second, 47 * time.Hour, 50 * time.Hour, -10 * time.Second} {
		s := linked(working(with(running(), stateOf("ses_a", restart.StatePending, "")), control.Working{ID: "ses_w", Title: "w", StartedAt: ago(old), ProgressAt: ago(old), Quiet: true}))
		s.Snapshot.Pending[0].SuspendedAt = ago(old)
		m, next := Model(s)
		if !next.After(noon) {
			t.Fatalf("%v: next is %v", old, next)
		}
		s.Now = next.Add(-time.Millisecond)
		before, _ := Model(s)
		s.Now = next
		after, _ := Model(s)
		if diff := cmp.Diff(m, before); diff != "" {
			t.Errorf("%v: differs before its time: %s", old, diff)
		}
		if cmp.Equal(m, after) {
			t.Errorf("%v: looks the same %v later", old, next.Sub(noon))
		}
	}
	for _, s := range []State{linked(running()), {Link: Absent}, {}} {
		if _, next := Model(s); !next.IsZero() {
			t.Errorf("a menu without ages changes at %v", next)
		}
	}
}

func TestOffers(t *testing.T) {
	t.Parallel()
	p := login()
	resume := Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}
	stale := resume
	stale.At--
	m, _ := Model(linked(with(running(), p)))
	for a, want := range map[Action]bool{
		resume: true, stale: false, {}: false, {Verb: StopServer}: true, {Verb: StartServer}: false,
		{Verb: StopServer, Shown: "ses_x"}: false, {Verb: LoginOn}: true, {Verb: LoginOff}: false, {Verb: Interrupt, Session: p.ID}: false,
	} {
		if got := m.Offers(a); got != want {
			t.Errorf("%+v: offered %v, want %v", a, got, want)
		}
	}
	m, _ = Model(linked(working(running(), control.Working{ID: "b"}, control.Working{ID: "a"})))
	for a, want := range map[Action]bool{
		{Verb: RestartServer}: false, {Verb: RestartServer, Shown: "a b"}: true, {Verb: StopServer, Shown: "a"}: false,
	} {
		if got := m.Offers(a); got != want {
			t.Errorf("at work: %+v: offered %v, want %v", a, got, want)
		}
	}
}

func TestShortDir(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{
		"":              "",
		"/":             "/",
		"/home/ada":     "~",
		"/home/ada/src": "~/src",
		"/home/adamant": "/home/adamant",
		"/home/ada/src/a/very/long/way/down/to/here": "…/a/very/long/way/down/to/here",
		"/" + strings.Repeat("x", 50):                "/" + strings.Repeat("x", 28) + "…",
		strings.Repeat("/a", 1500):                   "…" + strings.Repeat("/a", 14),
		"/a/" + strings.Repeat("x", 50):              "…/" + strings.Repeat("x", 27) + "…",
	} {
		if got := shortDir(dir, "/home/ada"); got != want {
			t.Errorf("%q: %q, want %q", dir, got, want)
		}
	}
}
