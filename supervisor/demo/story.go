package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"intermission/supervisor/control"
)

// story is one run of the demo.
type story struct {
	Options
	root   string
	screen screen
	limit  *time.Timer // gives up; stands still while a person is asked

	machines []*machine // to be ended
}

// machine makes the machine of one half of the story.
func (s *story) machine(name string, more ...string) (*machine, error) {
	m, err := newMachine(s.Self, filepath.Join(s.root, name), more...)
	if err == nil {
		s.machines = append(s.machines, m)
	}
	return m, err
}

// work is a session that is put to work.
type work struct {
	id     string
	title  string
	name   string // of its directory, below home
	script string // what the server's model does
	does   string // the same for a person
	log    string // the file to which its command writes a line; "" for none
}

// What stands in [[ ]] is done by the scripted model. None of it ends by itself
// before the reboot.
func newWorks() (notes, shop *work) {
	return &work{title: "Write the release notes", name: "notes", script: "[[slow n=2000 ms=50]]", does: "writes a long text"},
		&work{title: "Deploy the shop", name: "shop", script: "[[shell echo deployed >> deploys.txt && sleep 60]] [[slow n=2000 ms=50]]",
			does: "runs a command in its shell tool, which appends to deploys.txt", log: "deploys.txt"}
}

// A session that goes on with consent is soon done.
const continuation = "INTERMISSION_DEVSERVER_CONTINUE=[[slow n=10 ms=60]]"

// quiet is how long nothing must happen: the server resumes by itself 0.3 s after it is ready.
const quiet = 1500 * time.Millisecond

// tell tells the story and gives what was counted.
func (s *story) tell(ctx context.Context) (c counts, err error) {
	s.screen.text("The same reboot twice: without intermission, and with it.\n")
	s.screen.text("On the left stands how many requests have reached the model. Everything happens in %s.\n", s.root)
	if c.alone, err = s.without(ctx); err != nil {
		return c, err
	}
	err = s.with(ctx, &c)
	return c, err
}

// without shows the fault, and gives the requests that nobody asked for.
func (s *story) without(ctx context.Context) (unasked int, err error) {
	m, err := s.machine("1")
	if err != nil {
		return 0, err
	}
	s.screen.heading("Without intermission")
	p, srv, err := m.alone(ctx)
	if err != nil {
		return 0, err
	}
	notes, shop := newWorks()
	before, err := s.putToWork(ctx, m, srv, notes, shop)
	if err != nil {
		return 0, err
	}
	if err := m.stop(ctx, p); err != nil {
		return 0, err
	}
	s.screen.say(before, "The machine reboots: the server is stopped, as the system does it (SIGTERM),")
	if _, _, err = m.alone(ctx); err != nil {
		return 0, err
	}
	s.screen.say(before, "and is started again. Nobody touches the keyboard.")
	if _, err := m.watch(ctx, 10*time.Second, before+2); err != nil {
		return 0, err
	}
	now, err := m.watch(ctx, quiet/3, 0) // the tool starts after its request
	if err != nil {
		return 0, err
	}
	s.screen.say(now, "%s", s.screen.paint(bad, "Both sessions went on by themselves."))
	runs, err := m.runs(shop)
	if err != nil {
		return 0, err
	}
	s.screen.more(fmt.Sprintf("The command of %q has been started %d times by now.", shop.title, runs))
	return now - before, m.end(ctx)
}

// with shows the same with intermission.
func (s *story) with(ctx context.Context, c *counts) error {
	m, err := s.machine("2", continuation)
	if err != nil {
		return err
	}
	s.screen.heading("With intermission")
	_, srv, err := m.supervised(ctx)
	if err != nil {
		return err
	}
	notes, shop := newWorks()
	before, err := s.putToWork(ctx, m, srv, notes, shop)
	if err != nil {
		return err
	}
	if err := m.cut(ctx); err != nil {
		return err
	}
	s.screen.say(before, "The power fails: server and supervisor are gone at once (kill -9).")
	p, srv, err := m.supervised(ctx)
	if err != nil {
		return err
	}
	s.screen.say(before, "The machine is up again, and so is the server. Nobody touches the keyboard.")
	now, err := m.watch(ctx, quiet, 0)
	if err != nil {
		return err
	}
	c.unasked = now - before
	waiting, err := s.showPending(ctx, m, now)
	if err != nil {
		return err
	}
	c.waiting = len(waiting)
	if err := s.consent(ctx, m, srv, waiting, notes, shop); err != nil {
		return err
	}
	return s.rebootOnce(ctx, m, p, before, notes, shop, c)
}

// putToWork gives two sessions something to do and waits until they are at it; it
// gives the requests that were made so far.
func (s *story) putToWork(ctx context.Context, m *machine, srv server, works ...*work) (requests int, err error) {
	// Until the server has looked for unfinished sessions, it would take these for such.
	if _, err := m.watch(ctx, quiet/3, 0); err != nil {
		return 0, err
	}
	s.screen.say(0, "The server is up. Two sessions are put to work:")
	for _, w := range works {
		if err := os.Mkdir(m.path("home", w.name), 0o755); err != nil {
			return 0, err
		}
		if w.id, err = srv.begin(ctx, m.path("home", w.name), w.title+" "+w.script); err != nil {
			return 0, err
		}
	}
	for _, w := range works {
		if err := m.await(ctx, fmt.Sprintf("%q is not at work", w.title), func() error { return m.atWork(ctx, srv, w) }); err != nil {
			return 0, err
		}
	}
	all, err := m.requests()
	if err != nil {
		return 0, err
	}
	for i, w := range works {
		line := fmt.Sprintf("  %q %s", w.title, w.does)
		if i == 0 {
			s.screen.say(len(all), "%s", line)
		} else {
			s.screen.more(line)
		}
	}
	return len(all), nil
}

// atWork is nil once a session executes, has asked its model, and has its title.
func (m *machine) atWork(ctx context.Context, srv server, w *work) error {
	active, err := srv.active(ctx, w.id)
	if err != nil {
		return err
	}
	title, err := srv.title(ctx, w.id)
	if err != nil {
		return err
	}
	asked, err := m.requestsOf(w, 0)
	if err != nil {
		return err
	}
	runs, err := m.runs(w)
	if err != nil {
		return err
	}
	if !active || asked == 0 || title != w.title || w.log != "" && runs == 0 {
		return fmt.Errorf("active %v, requests %d, title %q, runs of its command %d", active, asked, title, runs)
	}
	return nil
}

// requestsOf counts a session's requests to the model after the first skip of all.
func (m *machine) requestsOf(w *work, skip int) (n int, err error) {
	all, err := m.requests()
	if err != nil {
		return 0, err
	}
	for _, r := range all[min(skip, len(all)):] {
		if r.Session == w.id {
			n++
		}
	}
	return n, nil
}

// runs counts how often a session's command was started, by what it wrote.
func (m *machine) runs(w *work) (int, error) {
	if w.log == "" {
		return 0, nil
	}
	text, err := os.ReadFile(m.path("home", w.name, w.log))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	return strings.Count(string(text), "\n"), err
}

// watch gives the number of requests after d, or, with enough above 0, as soon as there are enough.
func (m *machine) watch(ctx context.Context, d time.Duration, enough int) (n int, err error) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-end.C:
			all, err := m.requests()
			return len(all), err
		case <-tick.C:
			all, err := m.requests()
			if err != nil || enough > 0 && len(all) >= enough {
				return len(all), err
			}
		}
	}
}

// showPending shows what waits, as the command does.
func (s *story) showPending(ctx context.Context, m *machine, requests int) ([]control.Suspension, error) {
	pending, err := m.user.Pending(ctx)
	if err != nil {
		return nil, err
	}
	s.screen.say(requests, "%s $ intermission pending", s.screen.paint(good, fmt.Sprintf("After %v: nothing runs.", quiet)))
	s.screen.more("\n" + control.Text{Color: s.Colour, Now: time.Now()}.Pending(pending) + "\n")
	return pending.Pending, nil
}

// consent has the person say yes to one session, and no to the other.
func (s *story) consent(ctx context.Context, m *machine, srv server, waiting []control.Suspension, yes, no *work) error {
	resume, err := suspensionOf(yes, waiting)
	if err != nil {
		return err
	}
	dismiss, err := suspensionOf(no, waiting)
	if err != nil {
		return err
	}
	if err := s.ask(ctx, fmt.Sprintf("Press a key to resume %q and dismiss %q: ", yes.title, no.title)); err != nil {
		return err
	}
	result, err := m.user.Resume(ctx, resume.ID, resume.SuspendedAt)
	if err != nil {
		return fmt.Errorf("cannot resume: %w", err)
	}
	if result.Outcome != "resumed" {
		return fmt.Errorf("a resume was %s: %s", result.Outcome, result.Reason)
	}
	if err := m.await(ctx, "the resumed session does not come to its end", func() error {
		active, err := srv.active(ctx, yes.id)
		if err == nil && active {
			err = errors.New("it executes")
		}
		return err
	}); err != nil {
		return err
	}
	all, err := m.requests()
	if err != nil {
		return err
	}
	s.screen.say(len(all), "%q was resumed, and has come to its end.", yes.title)
	if _, err := m.user.Dismiss(ctx, dismiss.ID, dismiss.SuspendedAt); err != nil {
		return fmt.Errorf("cannot dismiss: %w", err)
	}
	s.screen.say(len(all), "%q was dismissed; its history stays.", no.title)
	return nil
}

func suspensionOf(w *work, waiting []control.Suspension) (control.Suspension, error) {
	for _, p := range waiting {
		if p.ID == w.id {
			return p, nil
		}
	}
	return control.Suspension{}, fmt.Errorf("%q does not wait for consent; %d others do", w.title, len(waiting))
}

// ask waits for the person, while the demo's own time stands still.
func (s *story) ask(ctx context.Context, question string) error {
	if s.Yes {
		s.screen.more("(--yes: one is resumed, the other dismissed, without a key)")
		return nil
	}
	s.screen.text("     %s %s", s.screen.paint(faint, "│"), s.screen.paint(strong, question))
	s.limit.Stop()
	defer s.limit.Reset(workLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, keyLimit, fmt.Errorf("no key was pressed within %v", keyLimit))
	defer cancel()
	err := key(ctx, s.In)
	s.screen.text("\n")
	return err
}

// rebootOnce reboots once more, and counts what there was to count.
func (s *story) rebootOnce(ctx context.Context, m *machine, p *process, skip int, yes, no *work, c *counts) error {
	all, err := m.requests()
	if err != nil {
		return err
	}
	if err := m.stop(ctx, p); err != nil {
		return err
	}
	if _, _, err := m.supervised(ctx); err != nil {
		return err
	}
	s.screen.say(len(all), "The machine reboots once more, this time in good order (SIGTERM).")
	now, err := m.watch(ctx, quiet, 0)
	if err != nil {
		return err
	}
	c.later = now - len(all)
	pending, err := m.user.Pending(ctx)
	if err != nil {
		return err
	}
	c.left = len(pending.Pending)
	s.screen.say(now, "After %v: nothing more was executed, and %d sessions wait.", quiet, c.left)
	if c.resumed, err = m.requestsOf(yes, skip); err != nil {
		return err
	}
	c.dismissed, err = m.requestsOf(no, skip)
	return err
}
