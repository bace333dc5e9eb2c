package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// Status implements control.Backend.
func (s *supervisor) Status(ctx context.Context) (control.Status, error) {
	status := s.status(ctx)
	ledger, _ := s.book()
	if ledger == nil {
		status.Sessions.Unknown = true // the phase's reason says why
		return status, nil
	}
	var err error
	if status.Sessions.Pending, err = s.countPending(ctx, ledger); err != nil {
		s.Log.Warn("what waits for consent can't be counted", "error", err)
		status.Sessions.Unknown = true
	}
	return status, nil
}

// countPending counts what waits for consent, as pending lists it.
func (s *supervisor) countPending(ctx context.Context, ledger *restart.Ledger) (n int, err error) {
	list, err := ledger.Pending(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range s.withoutAnnounced(list) {
		if !decided(p.State) {
			n++
		}
	}
	return n, nil
}

// decided says that a person has consented to a suspension, which waits no longer.
func decided(state restart.State) bool {
	return state == restart.StateQueued || state == restart.StateResuming
}

// status is the status without what the ledger tells.
func (s *supervisor) status(ctx context.Context) control.Status {
	s.mu.Lock()
	st, c := s.state, s.current
	status := control.Status{
		Supervisor: control.SupervisorStatus{PID: os.Getpid(), Version: s.Version, Since: s.since},
		Server: control.ServerStatus{
			State: string(st.Phase), Desired: string(st.Wish), Adopted: st.Adopted,
			Restarts: st.Restarts, Reason: st.Reason, LastExit: s.lastExit,
		},
	}
	if !st.Next.IsZero() {
		status.Server.NextAttempt = &st.Next
	}
	s.shown(&status)
	status.Sessions.Unknown = s.keepsLock() // what the server left isn't in the ledger yet
	s.mu.Unlock()
	s.refreshTitles(ctx)
	status.Sessions.Working = s.working()
	status.Sessions.Active = idsOf(status.Sessions.Working)
	if c != nil && c.over() && st.Phase == Running {
		status.Server.Reason = "it has ended; what it left is being parked"
	}
	if c != nil {
		status.Server.Generation, status.Server.Version = string(c.Generation), c.Version
		status.Server.PID, status.Server.URL, status.Server.Incarnation = c.PID, c.URL, c.ID
		if rss, err := platform.RSS(c.PID); err == nil {
			status.Server.RSSBytes = rss
		}
	}
	return status
}

// open gives the ledger and its resumer, or the reason why there is none.
func (s *supervisor) open() (*restart.Ledger, *restart.Resumer, error) {
	if l, r := s.book(); l != nil {
		return l, r, nil
	}
	s.mu.Lock()
	reason := s.state.Reason
	s.mu.Unlock()
	if reason == "" {
		reason = "it is being opened; try again"
	}
	return nil, nil, &control.Error{Code: control.CodeFailed, Message: "the ledger is not open: " + reason}
}

// Pending implements control.Backend.
func (s *supervisor) Pending(ctx context.Context) (control.Pending, error) {
	list, err := s.pending(ctx)
	if err != nil {
		return control.Pending{}, err
	}
	if len(list) == 0 {
		s.mu.Lock()
		unparked, reason := s.keepsLock(), s.state.Reason
		s.mu.Unlock()
		if unparked {
			return control.Pending{}, &control.Error{Code: control.CodeFailed, Message: "what waits for consent is not known, for what the server left could not be parked: " + reason}
		}
	}
	ledger, _ := s.book()
	var ids []string
	for _, p := range list {
		ids = append(ids, p.ID)
	}
	if err := ledger.Shown(ctx, ids); err != nil {
		return control.Pending{}, err
	}
	s.notify() // what can be resumed may differ without an event: a directory is back
	return control.Pending{Pending: list}, nil
}

// pending lists what waits, after what went on without us in the meantime was settled.
func (s *supervisor) pending(ctx context.Context) ([]control.Suspension, error) {
	_, resumer, err := s.open()
	if err != nil {
		return nil, err
	}
	s.reconcile(ctx)
	list, err := resumer.Pending(ctx)
	if err != nil {
		return nil, err
	}
	list = s.withoutAnnounced(list)
	out := make([]control.Suspension, len(list))
	for i, p := range list {
		out[i] = present(p)
	}
	return out, nil
}

// reconcile looks at the server's database if somebody else has written to it.
// It is best effort: what is out of date is found out at consent at the latest.
func (s *supervisor) reconcile(ctx context.Context) {
	s.mu.Lock()
	ledger, db := s.ledger, s.database
	s.mu.Unlock()
	if db == nil {
		return
	}
	changed, err := db.Changed(ctx)
	if err == nil && !changed {
		changed, err = ledger.Elsewhere(ctx) // another server's death writes nothing
	}
	if err != nil || !changed {
		return
	}
	if err := ledger.Reconcile(ctx, db); err != nil {
		s.Log.Warn("cannot reconcile the ledger with the server's database", "error", err)
	}
}

// present gives a suspension the shape of the contract.
func present(p restart.Suspension) control.Suspension {
	out := control.Suspension{
		ID: p.ID, Title: p.Title, Directory: p.Directory, SuspendedAt: p.SuspendedAt,
		Cause: p.Cause, State: p.State, Reason: p.Reason,
		LastPrompt: p.LastPrompt, LastTool: p.LastTool, WaitingFor: p.WaitingFor,
		Children: append([]string{}, p.Children...), Jobs: []control.Job{},
		Resumes: p.Resumes, ClaimedAt: p.ClaimedAt, Attempts: p.Attempts,
	}
	for _, j := range p.Jobs {
		out.Jobs = append(out.Jobs, control.Job{Kind: j.Kind, Text: j.Text, Status: j.Status})
	}
	return out
}

// Show implements control.Backend.
func (s *supervisor) Show(ctx context.Context, id string) (control.Detail, error) {
	ledger, resumer, err := s.open()
	if err != nil {
		return control.Detail{}, err
	}
	id, err = s.resolve(ctx, ledger, id)
	if err != nil {
		return control.Detail{}, err
	}
	s.reconcile(ctx)
	p, pending, journal, err := ledger.Show(ctx, id)
	if err != nil {
		return control.Detail{}, contractError(id, err)
	}
	d := control.Detail{Suspension: present(p), Pending: pending, Journal: []control.Entry{}}
	if !pending {
		d.State = "" // the journal says what it has come to
	} else if list, err := resumer.Pending(ctx); err == nil {
		for _, p := range list {
			if p.ID == id {
				d.State, d.Reason = p.State, p.Reason // what keeps it from being resumed now
			}
		}
	}
	for _, e := range journal {
		d.Journal = append(d.Journal, control.Entry{Time: time.UnixMilli(e.Time), SuspendedAt: e.SuspendedAt, What: e.What, Detail: e.Detail})
	}
	return d, nil
}

func (s *supervisor) resolve(ctx context.Context, l *restart.Ledger, prefix string) (string, error) {
	id, err := l.Resolve(ctx, prefix)
	return id, contractError(prefix, err)
}

// contractError gives an error of the ledger its code.
func contractError(id string, err error) error {
	var ambiguous *restart.AmbiguousError
	var refused *restart.RefusedError
	var stale *restart.StaleError
	switch {
	case errors.As(err, &refused):
		return &control.Error{Code: control.CodeRefused, Message: refused.Reason}
	case errors.As(err, &stale):
		return &control.Error{Code: control.CodeNotPending, Message: stale.Error()}
	case errors.As(err, &ambiguous):
		return &control.Error{Code: control.CodeAmbiguous, Message: err.Error()}
	case errors.Is(err, restart.ErrNotPending):
		return &control.Error{Code: control.CodeNotPending, Message: fmt.Sprintf("no such suspension of %s is pending; see what is with: intermission pending", restart.PlainText(id, 80))}
	}
	return err
}

// Resume implements control.Backend.
func (s *supervisor) Resume(ctx context.Context, id string, at int64) (control.Result, error) {
	ledger, resumer, err := s.open()
	if err != nil {
		return control.Result{}, err
	}
	if id, err = s.resolve(ctx, ledger, id); err != nil {
		return control.Result{}, err
	}
	if why := s.consents.enter(); why != "" {
		return control.Result{}, &control.Error{Code: control.CodeRefused, Message: why + "; try again in a moment"}
	}
	defer s.consents.leave()
	r, err := resumer.Resume(ctx, id, at)
	if err != nil {
		return control.Result{}, contractError(id, err)
	}
	return control.Result{ID: r.ID, Outcome: string(r.Verdict), Reason: r.Reason}, nil
}

// Dismiss implements control.Backend.
func (s *supervisor) Dismiss(ctx context.Context, id string, at int64) (control.Dismissed, error) {
	ledger, _, err := s.open()
	if err != nil {
		return control.Dismissed{}, err
	}
	if id, err = s.resolve(ctx, ledger, id); err != nil {
		return control.Dismissed{}, err
	}
	n, err := ledger.Dismiss(ctx, id, at)
	if err != nil {
		return control.Dismissed{}, contractError(id, err)
	}
	return control.Dismissed{ID: id, Dismissed: n}, nil
}

// StartServer implements control.Backend.
func (s *supervisor) StartServer(ctx context.Context) (control.Status, error) {
	return s.wish(ctx, InStart, Running)
}

// StopServer implements control.Backend.
func (s *supervisor) StopServer(ctx context.Context) (control.Status, error) {
	return s.wish(ctx, InStop, Stopped)
}

// RestartServer implements control.Backend.
func (s *supervisor) RestartServer(ctx context.Context) (control.Status, error) {
	if s.Fault != nil && s.serving() {
		return control.Status{}, &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("not restarted, for then it could not be started again: %v; mend that, and run: intermission service restart", s.Fault)}
	}
	if program := s.program(); program != nil && s.serving() {
		if _, err := os.Stat(program.Program); errors.Is(err, fs.ErrNotExist) {
			return control.Status{}, &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("not restarted, for then it could not be started again: %s isn't there any more; install it, and try again", program.Program)}
		}
	}
	return s.wish(ctx, InRestart, Running)
}

// serving says that a server is up.
func (s *supervisor) serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil && !s.current.over()
}

// wish hands the loop what the user wants, and waits for phase want.
func (s *supervisor) wish(ctx context.Context, kind InputKind, want Phase) (control.Status, error) {
	s.renewEnvironment(kind)
	durable := s.submit(Input{Kind: kind})
	st, err := s.settled(ctx, want)
	if err == nil {
		err = durable
	}
	return st, err
}

// settled waits until the server is in phase want, or in one that it doesn't leave soon by itself.
func (s *supervisor) settled(ctx context.Context, want Phase) (control.Status, error) {
	for {
		s.mu.Lock()
		st, changed := s.state, s.changed
		ending := st.Phase == Running && s.current != nil && s.current.over()
		s.mu.Unlock()
		if ending {
			st.Phase = Stopping // in all but name
		}
		if st.Handed {
			return control.Status{}, errEnding // the wish came too late to be taken
		}
		if st.Phase == want && (want != Running || st.Reason == "") { // else a restart was given up
			return s.Status(ctx)
		}
		switch st.Phase {
		case Stopped, Running, Backoff, Failed, Blocked:
			reason := st.Reason
			if reason == "" {
				reason = "see: intermission status"
			}
			return control.Status{}, &control.Error{Code: control.CodeFailed, Message: fmt.Sprintf("the server's state is %s: %s", st.Phase, reason)}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return control.Status{}, ctx.Err()
		case <-s.life.Done():
			return control.Status{}, errEnding
		}
	}
}

// Logs implements control.Backend.
func (s *supervisor) Logs(ctx context.Context, w io.Writer, n int, follow bool) error {
	lines, end := s.out.last(n, 0)
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	return s.out.follow(ctx, end, func(l string) error {
		_, err := fmt.Fprintln(w, l)
		return err
	})
}

// Watch implements control.Backend: a snapshot now and whenever something that is shown has changed.
func (s *supervisor) Watch(ctx context.Context, send func(control.Snapshot) error) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		snap, err := s.snapshot(ctx)
		if err != nil {
			return err
		}
		if err := send(snap); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.life.Done():
			return nil
		}
	}
}

// snapshot counts what it lists: between two looks at the ledger it may have changed.
func (s *supervisor) snapshot(ctx context.Context) (control.Snapshot, error) {
	snap := control.Snapshot{Status: s.status(ctx), Pending: []control.Suspension{}, Outcomes: s.outcomes.latest()}
	if l, _ := s.book(); l == nil {
		snap.Status.Sessions.Unknown = true // the phase's reason says why
		return snap, nil
	}
	var err error
	snap.Pending, err = s.pending(ctx)
	for _, p := range snap.Pending {
		if !decided(p.State) {
			snap.Status.Sessions.Pending++
		}
	}
	return snap, err
}
