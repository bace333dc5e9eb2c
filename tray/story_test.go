//go:build linux

package tray

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"intermission/platform"
)

// The tray with a real supervisor, which runs the dev server: the whole story, as
// a person clicks it.

// stage is a desk on which intermission supervises the dev server.
type stage struct {
	*desk
	supervisor *program
}

// newStage supervises from now on. What the model is asked is written to a journal,
// a line a turn.
func newStage(t testing.TB, d *desk) *stage {
	t.Helper()
	s := &stage{desk: d}
	d.env = append(d.env, "INTERMISSION_DEVSERVER_KIND=claims", "INTERMISSION_DEVSERVER_REQUESTS="+d.path("journal"), "INTERMISSION_DEVSERVER_CONTINUE=[[slow n=9000 ms=50]]")
	d.write(t, fmt.Sprintf("[server]\ncommand = [%q, \"devserver\", \"serve\", \"--service\"]\n[notify]\nquiet = []\n", intermission(t)), "config", "intermission", "config.toml")
	t.Cleanup(func() { s.endServer(t) })
	s.supervisor = d.start(t, nil, "run")
	s.waitServer(t)
	return s
}

// registration is what the dev server publishes of itself.
type serverRegistration struct {
	URL, Password string
	PID           int
}

func (s *stage) registered() (r serverRegistration, err error) {
	b, err := os.ReadFile(s.path("state", "opencode", "service.json"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err
}

func (s *stage) waitServer(t testing.TB) (r serverRegistration) {
	t.Helper()
	eventually(t, "the server", func() (err error) {
		if r, err = s.registered(); err != nil {
			return err
		}
		return s.call(r, "GET", "/api/health", nil, nil)
	})
	return r
}

// endServer ends a server that was left behind.
func (s *stage) endServer(t testing.TB) {
	t.Helper()
	r, err := s.registered()
	if err != nil {
		return // it went in good order
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.PID))
	if err != nil || !bytes.Contains(env, []byte("HOME="+s.path("home"))) {
		return
	}
	if id, err := platform.Identify(r.PID); err == nil {
		_ = id.Signal(platform.Kill)
	}
}

func (s *stage) call(r serverRegistration, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, r.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.SetBasicAuth("opencode", r.Password)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return errors.New(resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// wantTurns waits until the model was asked so often, and holds that it isn't more.
func (s *stage) wantTurns(t testing.TB, want int) {
	t.Helper()
	eventually(t, "the model is asked", func() error {
		if n := s.turns(t); n < want {
			return fmt.Errorf("%d turns, want %d", n, want)
		}
		return nil
	})
	if n := s.turns(t); n != want {
		t.Errorf("%d turns, want %d", n, want)
	}
}

// begin lets a new session work.
func (s *stage) begin(t testing.TB, prompt string) (id string) {
	t.Helper()
	return s.beginIn(t, s.path("home"), prompt)
}

func (s *stage) beginIn(t testing.TB, directory, prompt string) (id string) {
	t.Helper()
	r := s.waitServer(t)
	var made struct{ Data struct{ ID string } }
	if err := s.call(r, "POST", "/api/session", map[string]any{"location": map[string]any{"directory": directory}}, &made); err != nil {
		t.Fatal(err)
	}
	turns := s.turns(t)
	if err := s.call(r, "POST", "/api/session/"+made.Data.ID+"/prompt", map[string]any{"text": prompt}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its turn", func() error {
		if n := s.turns(t); n <= turns {
			return fmt.Errorf("%d turns", n)
		}
		return nil
	})
	return made.Data.ID
}

// turns counts how often the model was asked.
func (s *stage) turns(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile(s.path("journal"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// TestStory: two sessions are at work when the server dies. It comes back, both are
// pending and neither executes, until one is resumed by a click.
func TestStory(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h, notices := newHost(t, b), newNotifications(t, b)
	s := newStage(t, newDesk(t, b))
	s.begin(t, "Migrate_the database [[slow n=9000 ms=50]]")
	s.begin(t, "Write tests [[slow n=9000 ms=50]]")
	s.start(t, nil, "tray")
	item := h.item(t)
	menu := item.waitMenu(t, shows("At work (2)"))
	if menu.find("No session is pending") == nil {
		t.Errorf("before anything has happened:\n%s", menu.text())
	}
	before := s.turns(t)
	if err := syscall.Kill(s.waitServer(t).PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	item.waitMenu(t, func(n *node) bool { return shows("Pending (2)")(n) && shows("OpenCode 2.2.0 is running")(n) })
	notices.wait(t, func(n note) bool { return n.Summary == "2 sessions wait for you" })
	menu = item.waitMenu(t, shows("Pending (2)", "Migrate_the…", "Resume session"))
	for _, line := range []string{"Suspended just now: the server ended unexpectedly", "You wrote just now: “Migrate_the…", "Copy session ID", "Open in terminal"} {
		if menu.find("Pending (2)", "Migrate_the…", line) == nil {
			t.Errorf("no %q in\n%s", line, menu.text())
		}
	}
	if n := s.turns(t); n != before {
		t.Fatalf("%d turns without consent", n-before)
	}
	item.clickAt(t, "Pending (2)", "Migrate_the…", "Resume session")
	menu = item.waitMenu(t, func(n *node) bool { return shows("Pending (1)")(n) && shows("At work (1)")(n) })
	if menu.find("Pending (1)", "Write tests…") == nil || menu.find("At work (1)", "Migrate_the…") == nil {
		t.Errorf("the wrong one:\n%s", menu.text())
	}
	s.wantTurns(t, before+1)
	item.clickAt(t, "Pending (1)", "Write tests…", "Dismiss")
	item.waitMenu(t, shows("No session is pending"))
	item.clickAt(t, "At work (1)", "Migrate_the…", "Interrupt")
	item.waitMenu(t, lacks("At work (1)"))
	item.clickAt(t, "Stop server")
	item.waitMenu(t, shows("OpenCode is stopped"))
	item.clickAt(t, "Start server")
	item.waitMenu(t, shows("OpenCode 2.2.0 is running"))
	s.wantTurns(t, before+1)
}

// TestDirectoryIsBack: what no event tells is asked for when the menu is opened.
func TestDirectoryIsBack(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	s := newStage(t, newDesk(t, b))
	if err := os.Mkdir(s.path("project"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.beginIn(t, s.path("project"), "Migrate [[slow n=9000 ms=50]]")
	if err := os.Rename(s.path("project"), s.path("away")); err != nil {
		t.Fatal(err)
	}
	if status, said := s.run(t, "restart"); status != 0 {
		t.Fatal(said)
	}
	s.start(t, nil, "tray")
	item := h.item(t)
	item.waitMenu(t, shows("Pending (1)", "Migrate…", "Can't be resumed: its directory is gone…"))
	if err := os.Rename(s.path("away"), s.path("project")); err != nil {
		t.Fatal(err)
	}
	item.open(t)
	item.waitMenu(t, shows("Pending (1)", "Migrate…", "Resume session"))
}

// TestTwoTraysTwentyClicks: one execution, whoever clicks how often.
func TestTwoTraysTwentyClicks(t *testing.T) {
	t.Parallel()
	b1, b2 := newBus(t), newBus(t)
	h1, h2 := newHost(t, b1), newHost(t, b2)
	s := newStage(t, newDesk(t, b1))
	id := s.begin(t, "Migrate [[slow n=9000 ms=50]]")
	before := s.turns(t)
	if status, said := s.run(t, "restart"); status != 0 {
		t.Fatal(said)
	}
	s.start(t, nil, "tray")
	s.start(t, []string{"DBUS_SESSION_BUS_ADDRESS=" + b2.Address()}, "tray")
	ready := shows("Pending (1)", "Migrate…", "Resume session")
	i1, i2 := h1.item(t), h2.item(t)
	resume1 := i1.waitMenu(t, ready).find("Pending (1)", "Migrate…", "Resume session").ID
	resume2 := i2.waitMenu(t, ready).find("Pending (1)", "Migrate…", "Resume session").ID
	for range 10 {
		i1.click(t, resume1)
		i2.click(t, resume2)
	}
	terminal := s.start(t, nil, "resume", "--yes", id)
	if status := terminal.wait(t); !slices.Contains([]int{0, 4}, status) {
		t.Errorf("the terminal's exit status is %d", status)
	}
	for _, i := range []*statusItem{i1, i2} {
		i.waitMenu(t, shows("At work (1)", "Migrate…", "Interrupt"))
	}
	s.wantTurns(t, before+1)
	_, said := s.run(t, "show", id)
	if n := strings.Count(said, "consented"); n != 1 {
		t.Errorf("%d consents:\n%s", n, said)
	}
	if status, said := s.run(t, "stop"); status != 0 { // whatever was still on its way is over then
		t.Error(said)
	}
	s.wantTurns(t, before+1)
}

// TestSupervisorKilled: the tray sees that it is gone, and its successor, which adopts the server.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	s := newStage(t, newDesk(t, b))
	s.begin(t, "Migrate [[slow n=9000 ms=50]]")
	s.start(t, nil, "tray")
	item := h.item(t)
	for range 3 {
		item.waitMenu(t, shows("At work (1)", "Migrate…", "Interrupt"))
		s.supervisor.end(t, syscall.SIGKILL)
		item.waitMenu(t, func(n *node) bool { return shows("No supervisor is running")(n) && lacks("At work…")(n) })
		s.supervisor = s.start(t, nil, "run")
	}
	item.waitMenu(t, shows("At work (1)", "Migrate…", "Interrupt"))
}

// TestSetUp: no supervisor was ever there. The menu sets one up, and it outlives the tray.
func TestSetUp(t *testing.T) {
	t.Parallel()
	b := newBus(t)
	h := newHost(t, b)
	d := newDesk(t, b)
	s := &stage{desk: d}
	d.write(t, "[server]\ncommand = [\"/none/opencode\"]\n", "config", "intermission", "config.toml")
	d.env = append(d.env, "INTERMISSION_DEVSERVER_KIND=claims")
	p := d.start(t, nil, "tray")
	item := h.item(t)
	item.waitMenu(t, shows("Set up: start the supervisor now, and both at login"))
	if os.Geteuid() == 0 { // who is told why, and is left as before
		item.clickAt(t, "Set up: start the supervisor now, and both at login")
		item.waitMenu(t, shows("The supervisor was not set up: cannot install the service: the service never runs as root…"))
		if left := entriesOf(t, d); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		return
	}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine's own service manager is none of the tests'")
	}
	// What would keep it from starting is told, and nothing is set up.
	d.write(t, "[server]\ncommand = 3\n", "config", "intermission", "config.toml")
	item.clickAt(t, "Set up: start the supervisor now, and both at login")
	item.waitMenu(t, shows("The supervisor was not set up: cannot install the service: its configuration can't be…"))
	if left := entriesOf(t, d); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	d.write(t, fmt.Sprintf("[server]\ncommand = [%q, \"devserver\", \"serve\", \"--service\"]\n", intermission(t)), "config", "intermission", "config.toml")
	item.clickAt(t, "Set up: start the supervisor now, and both at login")
	t.Cleanup(func() { s.endServer(t) })
	t.Cleanup(func() { d.endSupervisor(t) })
	item.waitMenu(t, shows("OpenCode 2.2.0 is running"))
	eventually(t, "both start at login", func() error {
		if got, want := entriesOf(t, d), []string{"intermission-tray.desktop", "intermission.desktop"}; !slices.Equal(got, want) {
			return fmt.Errorf("at login starts %v, want %v", got, want)
		}
		return nil
	})
	p.end(t, syscall.SIGKILL)
	if status, said := d.run(t, "status"); status != 0 || !strings.Contains(said, "running") {
		t.Errorf("exit status %d: %s", status, said)
	}
}

// entriesOf gives what starts at login.
func entriesOf(t testing.TB, d *desk) (names []string) {
	t.Helper()
	list, err := os.ReadDir(d.path("config", "autostart"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// endSupervisor ends a supervisor that isn't our child, in good order.
func (d *desk) endSupervisor(t testing.TB) {
	t.Helper()
	_, said := d.run(t, "status", "--json")
	var st struct{ Supervisor struct{ PID int } }
	if err := json.Unmarshal([]byte(said), &st); err != nil || st.Supervisor.PID == 0 {
		t.Logf("no supervisor is left: %s", strconv.Quote(said))
		return
	}
	id, err := platform.Identify(st.Supervisor.PID)
	if err != nil {
		return
	}
	_ = id.Signal(platform.Terminate)
	eventually(t, "the supervisor's end", func() error {
		if _, err := platform.Identify(id.PID); err == nil {
			return errors.New("it lives on")
		}
		return nil
	})
}
