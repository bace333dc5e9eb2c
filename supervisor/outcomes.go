package supervisor

import (
	"context"
	"slices"
	"sync"
	"time"

	"intermission/restart"
	"intermission/supervisor/control"
)

// outcomes are the latest of what came of executions that a person should hear
// of, oldest first.
type outcomes struct {
	mu   sync.Mutex
	seq  int64
	list []outcome
}

type outcome struct {
	control.Outcome
	titled bool // its title was looked up, found or not
}

// add numbers it and takes it in; a title that it has is its.
func (o *outcomes) add(out control.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	out.Seq, out.At = o.seq, time.Now()
	o.list = append(o.list, outcome{out, out.Title != ""})
	o.list = slices.Clone(o.list[max(0, len(o.list)-control.MaxOutcomes):])
}

// latest gives them as they are shown.
func (o *outcomes) latest() []control.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]control.Outcome, len(o.list))
	for i, out := range o.list {
		list[i] = out.Outcome
	}
	return list
}

// untitled gives the sessions whose title has to be looked up.
func (o *outcomes) untitled() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var ids []string
	for _, out := range o.list {
		if !out.titled && !slices.Contains(ids, out.ID) {
			ids = append(ids, out.ID)
		}
	}
	return ids
}

// entitle gives these sessions the titles that were found.
func (o *outcomes) entitle(ids []string, found map[string]restart.Description) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.list {
		if out := &o.list[i]; !out.titled && slices.Contains(ids, out.ID) {
			out.Title, out.titled = plainTitle(found[out.ID]), true
		}
	}
}

// noteSettled takes in what came of a consent, where it isn't just that the session goes on.
func (s *supervisor) noteSettled(suspended int64, r restart.Result) {
	var what string
	switch {
	case r.Verdict == restart.VerdictRefused:
		what = "refused"
	case r.Verdict == restart.VerdictUnknown:
		what = "unknown"
	case r.Verdict == restart.VerdictResumed && r.Reason == restart.EndedAtOnce:
		what = "ended_at_once"
	default:
		return
	}
	s.noteOutcome(control.Outcome{ID: r.ID, SuspendedAt: suspended, What: what, Reason: r.Reason})
}

// noteOutcome takes it in and tells all who show the state.
func (s *supervisor) noteOutcome(out control.Outcome) {
	out.Title, out.Reason = s.titles.of(out.ID).title, restart.PlainText(out.Reason, maxOutcomeReason)
	s.outcomes.add(out)
	s.notify()
}

// maxOutcomeReason bounds the reason of an outcome, in graphemes.
const maxOutcomeReason = 300

// failure gives what is to be told of an execution that fails with e; nil for other
// events. It has to be asked for before the ledger is told.
func (s *supervisor) failure(ctx context.Context, ledger *restart.Ledger, e restart.Event) *control.Outcome {
	if e.Kind != restart.EventFailed {
		return nil
	}
	suspended, err := ledger.ResumedFrom(ctx, e.Session)
	if err != nil {
		s.Log.Warn("whether a failed session was resumed is not known", "session", e.Session, "error", err)
	}
	return &control.Outcome{ID: e.Session, SuspendedAt: suspended, What: "failed", Reason: e.Err}
}
