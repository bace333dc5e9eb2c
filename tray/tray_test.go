//go:build linux

package tray

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// The tray, with a supervisor that says what a test wants. It runs as the test
// binary, so that the race detector sees it.

func init() { programs["tray"] = trayProgram }

func trayProgram() {
	paths, err := platform.FindPaths(os.Getenv)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = Run(ctx, Config{
		Options: Options{Version: testVersion, Home: os.Getenv("HOME"), Notify: true, StallAfter: 30 * time.Minute},
		Paths:   paths, Self: os.Args[0], Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Println(err)
	}
	if running := (AlreadyRunningError{}); err != nil && !errors.As(err, &running) {
		os.Exit(1)
	}
}

// tray starts the tray on this desk.
func (d *desk) tray(t testing.TB) *program {
	t.Helper()
	return d.launch(t, exec.Command(d.self(t)), []string{asProgram + "=tray", "GORACE=exitcode=0"})
}

// self gives the test binary a path that stays: where go test built it, it is
// temporary, and nothing that starts at login may name it.
func (d *desk) self(t testing.TB) string {
	t.Helper()
	made, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := d.path("home", "intermission")
	if err := os.Symlink(made, link); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return link
}

// setting is a desk with a panel, a notification daemon, a supervisor that says snap, and a tray.
type setting struct {
	*desk
	bus        *bus
	host       *host
	notices    *notifications
	supervisor *fakeSupervisor
	retire     func()
	tray       *program
	item       *statusItem
}

func newSetting(t testing.TB, snap control.Snapshot) *setting {
	t.Helper()
	return newSettingOn(t, newBus(t), snap)
}

func newSettingOn(t testing.TB, b *bus, snap control.Snapshot) *setting {
	t.Helper()
	s := &setting{bus: b}
	s.host, s.notices = newHost(t, s.bus), newNotifications(t, s.bus, "body", "body-markup", "actions")
	s.desk = newDesk(t, s.bus)
	s.supervisor, s.retire = s.supervise(t, fresh(snap))
	s.tray = s.desk.tray(t)
	s.item = s.host.item(t)
	return s
}

// fresh moves a snapshot's times, which are those of noon, to now.
func fresh(snap control.Snapshot) control.Snapshot {
	shift := time.Since(noon).Milliseconds()
	snap.Status.Supervisor.Version = testVersion
	snap.Pending = slices.Clone(snap.Pending)
	for i := range snap.Pending {
		p := &snap.Pending[i]
		p.SuspendedAt += shift
		if p.LastPrompt != nil {
			l := *p.LastPrompt
			l.At += shift
			p.LastPrompt = &l
		}
	}
	snap.Status.Sessions.Working = slices.Clone(snap.Status.Sessions.Working)
	for i := range snap.Status.Sessions.Working {
		snap.Status.Sessions.Working[i].StartedAt += shift
		snap.Status.Sessions.Working[i].ProgressAt += shift
	}
	return snap
}

func (s *setting) says(snap control.Snapshot) { s.supervisor.say(fresh(snap)) }

// shows says that an entry stands in the menu.
func shows(labels ...string) func(*node) bool {
	return func(n *node) bool { return n.find(labels...) != nil }
}

func lacks(labels ...string) func(*node) bool {
	return func(n *node) bool { return n.find(labels...) == nil }
}

// asNodes is what a host should read of a model's items, but for ids and what is hidden.
func asNodes(items []Item) []*node {
	var nodes []*node
	for _, i := range items {
		if i.Hidden {
			continue
		}
		n := &node{Label: i.Title, Enabled: !i.Disabled, Visible: true, Separator: i.Separator, Submenu: i.Submenu, Children: asNodes(i.Items)}
		if i.Separator {
			n.Enabled = true
		}
		if i.Checkable {
			n.Toggle = off
			if i.Checked {
				n.Toggle = on
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func visible(nodes []*node) []*node {
	var out []*node
	for _, n := range nodes {
		if n.Visible {
			c := *n
			c.Children = visible(n.Children)
			out = append(out, &c)
		}
	}
	return out
}

// TestHostReadsTheModel: whatever the supervisor says, one thing after another,
// the host reads just what Model gives for it.
func TestHostReadsTheModel(t *testing.T) {
	t.Parallel()
	evil := login()
	evil.Title = "rm_x && <b>y</b>\n\u202eright-to-left 🎉"
	busy := control.Working{ID: "ses_w", Title: "Write_tests", Directory: "/srv/x", StartedAt: ago(12 * time.Minute), ProgressAt: ago(0)}
	silent := control.Working{ID: "ses_s", Title: "Wait", StartedAt: ago(26 * time.Hour), ProgressAt: ago(5 * time.Hour)}
	s := newSetting(t, running())
	for i, snap := range []control.Snapshot{
		with(running(), login()),
		with(running(), evil, stateOf("ses_u", restart.StateUnknown, "")),
		with(running(), many(60)...),
		with(running(), many(59)...),
		with(running(), many(60)[3:30]...),
		working(with(running(), stateOf("ses_r", restart.StateResuming, "")), busy, silent),
		working(running(), silent),
		at(with(running(), stateOf("ses_b", restart.StateBlocked, "the server is down")), "stopped", ""),
		at(running(), "failed", "5 deaths in 5 minutes"),
		running(),
	} {
		snap.Status.Server.Version = fmt.Sprint("1.0.", i) // so that the last change is seen
		s.says(snap)
		got := s.item.waitMenu(t, func(n *node) bool { return n.find(fmt.Sprintf("OpenCode 1.0.%d…", i)) != nil })
		state := State{
			Options: Options{Version: testVersion, Home: s.path("home"), StallAfter: 30 * time.Minute},
			Now:     time.Now(), Link: Linked, Snapshot: fresh(snap), LoginSeen: true,
		}
		want, _ := Model(state)
		compare := func() string {
			got = s.item.menu(t)
			return cmp.Diff(asNodes(want.Items), visible(got.Children), cmpopts.IgnoreFields(node{}, "ID"), cmpopts.EquateEmpty())
		}
		s.item.waitMenu(t, func(*node) bool { return compare() == "" || t.Failed() })
		look := s.item.waitLook(t, func(l look) bool { return l.ToolTip == want.Tooltip && l.Title == want.Title })
		if icon := iconOf(t, want.Icon.Data()); look.Icon != icon {
			t.Errorf("%d: the icon isn't that of %s", i, want.Icon)
		}
	}
}

func TestClicksBecomeActs(t *testing.T) {
	t.Parallel()
	s := newSetting(t, with(running(), login()))
	// A click that comes after a change is stale, and does nothing: each is awaited.
	clickAt := func(act string, labels ...string) {
		s.item.clickAt(t, labels...)
		eventually(t, "what was clicked", func() error {
			if did := s.supervisor.did(); !slices.ContainsFunc(did, func(d string) bool { return strings.HasPrefix(d, act) }) {
				return fmt.Errorf("%s isn't done, but %q", act, did)
			}
			return nil
		})
	}
	s.item.waitMenu(t, shows("Pending (1)"))
	clickAt("resume", "Pending (1)", "Fix the login…", "Resume session")
	pending, _ := s.supervisor.now()
	s.says(working(with(running(), stateOf("ses_b", restart.StatePending, "")), control.Working{ID: "ses_w", Title: "Write tests", StartedAt: ago(time.Hour), ProgressAt: ago(0)}))
	s.item.waitMenu(t, shows("At work (1)"))
	busy, _ := s.supervisor.now()
	clickAt("interrupt", "At work (1)", "Write tests", "Interrupt")
	clickAt("dismiss", "Pending (1)", "ses_b…", "Dismiss")
	clickAt("restart", "Restart server: 1 session will be suspended", "Yes, suspend 1 session and restart")
	s.says(running())
	s.item.waitMenu(t, lacks("At work (1)"))
	clickAt("stop", "Stop server")
	s.says(at(running(), "stopped", ""))
	s.item.waitMenu(t, shows("Start server"))
	clickAt("start", "Start server")
	want := []string{
		fmt.Sprint("dismiss ses_b ", busy.Pending[0].SuspendedAt), fmt.Sprint("interrupt ses_w ", busy.Status.Sessions.Working[0].StartedAt),
		"restart", fmt.Sprint("resume ses_login ", pending.Pending[0].SuspendedAt), "start", "stop",
	}
	eventually(t, "all acts", func() error {
		did := s.supervisor.did()
		slices.Sort(did) // they are carried out side by side
		if diff := cmp.Diff(want, did); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// TestStaleClicksDoNothing: twenty clicks on one item are one act, and a click on
// an item that stood in an earlier menu is none.
func TestStaleClicksDoNothing(t *testing.T) {
	t.Parallel()
	s := newSetting(t, with(running(), login()))
	menu := s.item.waitMenu(t, shows("Pending (1)"))
	resume := menu.find("Pending (1)", "Fix the login…", "Resume session").ID
	dismiss := menu.find("Pending (1)", "Fix the login…", "Dismiss…").ID
	hold := make(chan struct{})
	s.supervisor.mu.Lock()
	s.supervisor.hold = hold
	s.supervisor.mu.Unlock()
	for range 20 {
		s.item.click(t, resume)
	}
	s.item.waitMenu(t, shows("Pending (1)", "Fix the login…", "Resuming…"))
	s.item.click(t, dismiss) // stood there before
	again := login()
	again.SuspendedAt += 5
	s.says(with(running(), again))
	close(hold)
	s.item.waitMenu(t, shows("Pending (1)", "Fix the login…", "Resume session"))
	s.item.click(t, resume)
	s.item.click(t, dismiss)
	s.item.click(t, 4_000_000)
	s.item.clickAt(t, "Stop server") // what comes after them
	eventually(t, "the last click", func() error {
		if did := s.supervisor.did(); !slices.Contains(did, "stop") {
			return fmt.Errorf("%q", did)
		}
		return nil
	})
	if did := s.supervisor.did(); len(did) != 2 || !strings.HasPrefix(did[0], "resume ses_login ") {
		t.Errorf("acts: %q", did)
	}
}

func TestNothingChangedIsNoTraffic(t *testing.T) {
	t.Parallel()
	snap := with(working(running(), control.Working{ID: "ses_w", Title: "w", StartedAt: ago(0), ProgressAt: ago(0)}), many(12)...)
	s := newSetting(t, snap)
	s.item.waitMenu(t, shows("Pending (12)"))
	s.item.settled(t)
	s.bus.waitCarried(t, "the icon, set again once the connection is sure", func(m message) bool { return strings.HasSuffix(m.Name, "NewToolTip") })
	same, _ := s.supervisor.now()
	m := s.bus.monitor(t)
	for i := range 100 {
		same.Status.Server.RSSBytes = int64(i) // it differs on the wire, and shows nothing else
		s.supervisor.say(same)
		s.supervisor.wantRead(t)
	}
	same.Status.Server.Version = "1.19" // then something that shows: in the header, title and tooltip
	s.supervisor.say(same)
	s.item.waitLook(t, func(l look) bool { return strings.Contains(l.ToolTip, "1.19") })
	var sent []string
	for _, msg := range m.sent(t, s.item.sender) {
		sent = append(sent, msg.Name[strings.LastIndex(msg.Name, ".")+1:])
	}
	want := []string{"ItemsPropertiesUpdated", "PropertiesChanged", "LayoutUpdated", "PropertiesChanged", "NewTitle", "PropertiesChanged", "NewToolTip"}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Error(diff)
	}
}

// TestManyChangesLeaveNothing: ten thousand states leak no memory, no goroutine, no
// item. The tray is the program that users have: the race detector would take minutes.
func TestManyChangesLeaveNothing(t *testing.T) {
	t.Parallel()
	few, many := changed(t, 200), changed(t, 10_000)
	t.Logf("after 200: %+v, after 10,000: %+v", few, many)
	if many.goroutines > few.goroutines+2 || many.resident > few.resident+4<<20 || many.items != few.items {
		t.Error("something is left of each change")
	}
}

// leavings is what a tray holds.
type leavings struct {
	goroutines int
	resident   int64 // bytes
	items      int
}

// changed shows so many states to a tray, each drawn before the next comes (a slow
// reader gets the newest only), and gives what it holds afterwards.
func changed(t *testing.T, states int) leavings {
	t.Helper()
	b := newPlainBus(t)
	h := newHost(t, b)
	d := newDesk(t, b)
	f, _ := d.supervise(t, fresh(running()))
	p := d.start(t, nil, "tray")
	h.waitRegistrations(t, 1)
	// Only what says that all is drawn: reading all signals would cost more than making them.
	tips := make(chan *dbus.Signal, 64)
	conn := b.Connect(t)
	conn.Signal(tips)
	if err := conn.AddMatchSignal(dbus.WithMatchInterface(itemName), dbus.WithMatchMember("NewToolTip")); err != nil {
		t.Fatal(err)
	}
	all := []control.Snapshot{
		with(running(), login()), running(), with(running(), many(3)...), at(running(), "stopped", ""), with(running(), many(4)[1:]...),
		working(with(running(), many(2)...), control.Working{ID: "ses_w", Title: "w", StartedAt: ago(0), ProgressAt: ago(0)}),
	}
	for i := range states {
		snap := fresh(all[i%len(all)])
		snap.Status.Server.Version = fmt.Sprint("1.", i)
		f.say(snap)
		select {
		case <-tips:
		case <-time.After(patience):
			t.Fatalf("state %d isn't drawn", i)
		}
	}
	f.say(fresh(running()))
	menu := h.item(t).waitMenu(t, func(n *node) bool {
		return shows("OpenCode 1.18.33 is running")(n) && shows("No session is pending")(n) && shows("Stop server")(n) && lacks("At work…")(n)
	})
	var l leavings
	var err error
	if l.resident, err = platform.RSS(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	l.items = countNodes(menu)
	p.end(t, syscall.SIGQUIT) // Go's runtime writes the stacks of all goroutines
	l.goroutines = strings.Count(p.said(), "\ngoroutine ")
	if l.goroutines == 0 {
		t.Fatal("there are no goroutines in what it said")
	}
	return l
}

func countNodes(n *node) int {
	sum := 1
	for _, c := range n.Children {
		sum += countNodes(c)
	}
	return sum
}
