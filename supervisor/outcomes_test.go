package supervisor

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"intermission/restart"
	"intermission/supervisor/control"
)

func TestWhatIsAnOutcome(t *testing.T) {
	t.Parallel()
	s := &supervisor{Options: Options{Log: slog.New(slog.DiscardHandler)}, changed: make(chan struct{})}
	for i, r := range []restart.Result{
		{ID: "ses_1", Verdict: restart.VerdictResumed},
		{ID: "ses_2", Verdict: restart.VerdictResumed, Reason: restart.EndedAtOnce},
		{ID: "ses_3", Verdict: restart.VerdictQueued},
		{ID: "ses_4", Verdict: restart.VerdictRefused, Reason: "no\x1b[31m model\n" + strings.Repeat("x", 400)},
		{ID: "ses_5", Verdict: restart.VerdictAlready},
		{ID: "ses_6", Verdict: restart.VerdictUnknown, Reason: "reset"},
	} {
		changed := s.changed
		before := len(s.outcomes.latest())
		s.noteSettled(int64(1000+i), r)
		if told := closed(changed); told != (len(s.outcomes.latest()) > before) {
			t.Errorf("%+v: told %v", r, told)
		}
	}
	var got []string
	for _, o := range s.outcomes.latest() {
		got = append(got, fmt.Sprint(o.Seq, " ", o.ID, " ", o.SuspendedAt, " ", o.What, " ", o.At.IsZero()))
		if n := len([]rune(o.Reason)); n > 300 || strings.ContainsAny(o.Reason, "\x1b\n") {
			t.Errorf("a reason of %d characters: %q", n, o.Reason)
		}
	}
	if want := "[1 ses_2 1001 ended_at_once false 2 ses_4 1003 refused false 3 ses_6 1005 unknown false]"; fmt.Sprint(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTheLatestOutcomesAreKept(t *testing.T) {
	t.Parallel()
	var o outcomes
	for i := range 3 * control.MaxOutcomes {
		o.add(control.Outcome{ID: fmt.Sprint("ses_", i)})
	}
	list := o.latest()
	if len(list) != control.MaxOutcomes || list[0].Seq != 2*control.MaxOutcomes+1 || list[len(list)-1].Seq != 3*control.MaxOutcomes {
		t.Errorf("%d, from %d", len(list), list[0].Seq)
	}
	o.entitle(o.untitled(), map[string]restart.Description{list[0].ID: {Title: "Fix it"}})
	if o.latest()[0].Title != "Fix it" || o.latest()[1].Title != "" || len(o.untitled()) != 0 {
		t.Errorf("%+v, %q", o.latest()[:2], o.untitled())
	}
}
