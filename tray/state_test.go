package tray

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
	"intermission/supervisor/control"
)

// session plays inputs to a state, and collects what is to be done.
type session struct {
	state   State
	acts    []Action
	notices []string // "KIND TITLE: BODY"
}

func begin(o Options) *session { return &session{state: State{Options: o, Now: noon}} }

// told is a session whose notifications are on.
func told() *session {
	return begin(Options{Version: "1.0", Notify: true, StallAfter: 30 * time.Minute})
}

func (s *session) do(in Input) {
	in.At = s.state.Now
	var effects []Effect
	s.state, effects = Reduce(s.state, in)
	for _, e := range effects {
		if e.Do != nil {
			s.acts = append(s.acts, *e.Do)
		}
		if e.Notice != nil {
			s.notices = append(s.notices, e.Notice.Kind+" "+e.Notice.Title+": "+e.Notice.Body)
		}
	}
}

func (s *session) sees(snap control.Snapshot) { s.do(Input{Snapshot: &snap}) }
func (s *session) clicks(a Action)            { s.do(Input{Click: &a}) }

// passes lets time pass, as the loop would: it wakes when something is due.
func (s *session) passes(d time.Duration) {
	end := s.state.Now.Add(d)
	for {
		_, next := Model(s.state)
		if due := s.state.notices.next(s.state); next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}
		if next.IsZero() || next.After(end) {
			break
		}
		if !next.After(s.state.Now) {
			panic("the loop would spin")
		}
		s.state.Now = next
		s.do(Input{})
	}
	s.state.Now = end
	s.do(Input{})
}

func (s *session) wantActs(t *testing.T, want ...Action) {
	t.Helper()
	if diff := cmp.Diff(want, s.acts); diff != "" {
		t.Error("acts", diff)
	}
	s.acts = nil
}

func (s *session) wantNotices(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.notices); diff != "" {
		t.Error("notices", diff)
	}
	s.notices = nil
}

// TestTwentyClicks: of twenty clicks on one item, one acts; so it does of a click
// on a suspension that was replaced, and of one whose menu was drawn before a stop.
func TestTwentyClicks(t *testing.T) {
	t.Parallel()
	s := told()
	p := stateOf("ses_a", restart.StatePending, "")
	resume := Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}
	s.sees(with(running(), p))
	for range 20 {
		s.clicks(resume)
	}
	s.wantActs(t, resume)
	s.do(Input{Done: &Done{Action: resume, Outcome: "resumed"}})
	s.sees(running())
	s.clicks(resume)
	s.wantActs(t)
	again := p
	again.SuspendedAt++
	s.sees(with(running(), again))
	s.clicks(resume)
	s.clicks(Action{Verb: Dismiss, Session: p.ID, At: p.SuspendedAt})
	s.wantActs(t)
	s.sees(at(with(running(), stateOf("ses_a", restart.StateBlocked, "the server is down")), "stopped", ""))
	s.clicks(resume)
	s.wantActs(t)
	s.do(Input{Lost: &Loss{Absent: true}})
	s.clicks(resume)
	s.wantActs(t)
}

// TestDoneIsDone: the answer to a click may come before the state that shows it.
func TestDoneIsDone(t *testing.T) {
	t.Parallel()
	s := told()
	p := login()
	s.sees(with(running(), p))
	for _, a := range []Action{
		{Verb: Resume, Session: p.ID, At: p.SuspendedAt},
		{Verb: Dismiss, Session: p.ID, At: p.SuspendedAt, Shown: "ses_c1 ses_c2"},
	} {
		s := *s
		s.clicks(a)
		s.wantActs(t, a)
		s.do(Input{Done: &Done{Action: a}})
		s.clicks(a)
		s.wantActs(t)
		s.do(Input{Done: &Done{Action: a, Outcome: "refused", Reason: "500"}})
	}
	// One more subagent is under it than was said.
	more := login()
	more.Children = append(more.Children, "ses_c3")
	s.sees(with(running(), more))
	s.clicks(Action{Verb: Dismiss, Session: p.ID, At: p.SuspendedAt, Shown: "ses_c1 ses_c2"})
	s.wantActs(t)
	// What was refused can be tried again.
	resume := Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}
	s.clicks(resume)
	s.do(Input{Done: &Done{Action: resume, Outcome: "refused", Reason: "500"}})
	s.clicks(resume)
	s.wantActs(t, resume, resume)
}

// TestRestartAsks: what was shown when it was asked is what the yes is about.
func TestRestartAsks(t *testing.T) {
	t.Parallel()
	s := told()
	w := func(id string) control.Working { return control.Working{ID: id, StartedAt: ago(0), ProgressAt: ago(0)} }
	s.sees(working(running(), w("ses_a")))
	yes := Action{Verb: RestartServer, Shown: "ses_a"}
	s.clicks(Action{Verb: RestartServer}) // of a menu that was drawn before it was at work
	s.sees(working(running(), w("ses_a"), w("ses_b")))
	s.clicks(yes) // for one session
	s.wantActs(t)
	s.sees(working(running(), w("ses_a")))
	s.clicks(yes)
	s.clicks(yes)
	s.clicks(Action{Verb: StopServer, Shown: "ses_a"})
	s.wantActs(t, yes)
}

func TestReduceLeavesItsInput(t *testing.T) {
	t.Parallel()
	p := stateOf("ses_a", restart.StatePending, "")
	s := told()
	s.sees(with(running(), p))
	before, _ := Model(s.state)
	old := s.state
	s.clicks(Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt})
	s.sees(working(running(), control.Working{ID: "x"}))
	after, _ := Model(old)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
}

func TestWhatCameOfAnAct(t *testing.T) {
	t.Parallel()
	p := login()
	resume := Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}
	for _, tt := range []struct {
		done          Done
		message, told string
	}{
		{Done{Action: resume, Outcome: "resumed"}, "", ""},
		{Done{Action: resume, Outcome: "resumed", Reason: "ended at once"}, "“Fix the login” was resumed, and ended at once", ""},
		{Done{Action: resume, Outcome: "refused", Reason: "its directory is gone: /x"}, "“Fix the login” was not resumed: its directory is gone: /x", "act Intermission: “Fix the login” was not resumed: its directory is gone: /x"},
		{Done{Action: resume, Outcome: "already", Reason: "it was resumed"}, "“Fix the login” was not resumed again: it was resumed", "act Intermission: “Fix the login” was not resumed again: it was resumed"},
		{Done{Action: Action{Verb: CopyID, Session: p.ID}, Reason: "install xclip"}, "The session ID was not copied: install xclip", "act Intermission: The session ID was not copied: install xclip"},
		{Done{Action: Action{Verb: SetUp}, Reason: "port\x1b[0m \u202egone"}, "The supervisor was not set up: port gone", "act Intermission: The supervisor was not set up: port gone"},
		{Done{Action: Action{Verb: SetUp}, Outcome: "set up", Reason: "It runs while you are logged in."}, "The supervisor is set up. It runs while you are logged in.", ""},
	} {
		s := told()
		s.state.Quiet = []QuietHours{{0, 720}, {720, 0}} // an answer isn't held back
		s.sees(with(running(), p))
		s.notices = nil
		s.do(Input{Done: &tt.done})
		if s.state.Message != tt.message {
			t.Errorf("%+v: message %q", tt.done, s.state.Message)
		}
		var want []string
		if tt.told != "" {
			want = []string{tt.told}
		}
		s.wantNotices(t, want...)
		s.passes(messageStays)
		if s.state.Message != "" {
			t.Errorf("%q stays", s.state.Message)
		}
	}
}
