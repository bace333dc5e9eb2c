package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// Interrupt implements control.Backend.
func (s *supervisor) Interrupt(ctx context.Context, id string, at int64) (control.Interrupted, error) {
	id, err := named(id, s.roster.ids())
	if err != nil {
		return control.Interrupted{}, err
	}
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c == nil || c.over() {
		return control.Interrupted{}, notAtWork(id)
	}
	a, err := s.markAborted(c, id, at)
	if err != nil {
		return control.Interrupted{}, err
	}
	if at != 0 && s.outdated(ctx, id, a.started) {
		c.withdrawAbort(id, a)
		return control.Interrupted{}, hasEnded(id)
	}
	if err := c.client.Interrupt(ctx, id); err != nil {
		c.withdrawAbort(id, a)
		if errors.Is(err, opencode.ErrIdle) {
			return control.Interrupted{}, notAtWork(id)
		}
		return control.Interrupted{}, fmt.Errorf("cannot interrupt %s: %w", id, err)
	}
	faultpoint.At(faultpoint.InterruptSent)
	if !s.acceptAbort(c, id, a) {
		return control.Interrupted{}, interruptedWhich(id)
	}
	if c.Generation == opencode.V1 && c.guard.stopping.Load() {
		if err := s.settleAborted(ctx, id); err != nil {
			return control.Interrupted{}, err
		}
	}
	s.Log.Info("interrupted by its user", "session", id)
	return control.Interrupted{ID: id}, nil
}

// outdatedTimeout bounds a look at the server's database before an interrupt, which must not wait for it.
const outdatedTimeout = 500 * time.Millisecond

// outdated tells whether the server has begun another execution of the session since
// the one that is named started, though its event has not reached us. What can't be
// found out counts as no.
func (s *supervisor) outdated(ctx context.Context, id string, started int64) bool {
	told := s.roster.told(id, started)
	if told == 0 {
		return false
	}
	s.mu.Lock()
	db := s.database
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, outdatedTimeout)
	defer cancel()
	newest, err := db.Began(ctx, id)
	if err != nil {
		s.Log.Warn("whether another execution has begun is not known", "session", id, "error", err)
	}
	return err == nil && newest > told
}

// markAborted notes, before it is done, that the session's execution at is
// interrupted by its user; 0 is the one that runs now. acceptAbort or withdrawAbort
// has to follow.
func (s *supervisor) markAborted(c *incarnation, id string, at int64) (*abort, error) {
	c.aborts.Lock()
	defer c.aborts.Unlock()
	started := s.roster.started(id)
	switch {
	case started == 0:
		return nil, notAtWork(id)
	case at != 0 && at != started:
		return nil, hasEnded(id)
	}
	a := c.aborted[id]
	if a == nil || a.started != started { // else it is interrupted a second time
		a = &abort{started: started}
		c.aborted[id] = a
	}
	a.underWay++
	return a, nil
}

// withdrawAbort takes back an interrupt that failed: perhaps it never arrived, and
// then a stop is what ends the execution, unless another interrupt does.
func (c *incarnation) withdrawAbort(id string, a *abort) {
	c.aborts.Lock()
	defer c.aborts.Unlock()
	a.underWay--
	if a.underWay == 0 && !a.accepted && c.aborted[id] == a {
		delete(c.aborted, id)
	}
}

// acceptAbort notes that the server has accepted the interrupt. From here on a stop
// leaves the execution out; false when another has begun since, or may have: then it
// isn't known which the interrupt has met.
func (s *supervisor) acceptAbort(c *incarnation, id string, a *abort) bool {
	c.aborts.Lock()
	defer c.aborts.Unlock()
	a.underWay--
	if c.aborted[id] != a {
		return false
	}
	a.accepted = true
	return true
}

// settleAborted ends what a stop of v1 has written of a session before its interrupt
// was accepted: the event of its end may have counted as the stop's, or be lost with
// the server. Its error is that the server was faster, and the session waits.
func (s *supervisor) settleAborted(ctx context.Context, id string) error {
	ledger, _ := s.book()
	if err := ledger.Apply(ctx, restart.Event{Kind: restart.EventInterrupted, Session: id}); err != nil {
		return fmt.Errorf("cannot note that %s was interrupted: %w", id, err)
	}
	_, waits, _, err := ledger.Show(ctx, id)
	if err != nil && !errors.Is(err, restart.ErrNotPending) {
		return fmt.Errorf("whether %s was interrupted is not known: %w", id, err)
	}
	if waits {
		return fmt.Errorf("the server ended before %s was interrupted; it waits for consent: intermission pending", id)
	}
	return nil
}

func hasEnded(id string) error {
	return &control.Error{Code: control.CodeNotPending, Message: fmt.Sprintf("that work of %s has ended, and another has begun since; see: intermission status", id)}
}

// interruptedWhich says that an interrupt was accepted, but perhaps not of what was meant.
func interruptedWhich(id string) error {
	return &control.Error{Code: control.CodeUnknown, Message: fmt.Sprintf("that work of %s had ended, and another execution had begun, which may have been interrupted; look with: intermission status", id)}
}

func notAtWork(id string) error {
	return &control.Error{Code: control.CodeNotPending, Message: fmt.Sprintf("no session %s is at work; see: intermission status", restart.PlainText(id, 80))}
}

// named gives the session that id names: one of ids, or an unambiguous beginning of one.
func named(id string, ids []string) (string, error) {
	var fits []string
	for _, known := range ids {
		if known == id {
			return id, nil
		}
		if strings.HasPrefix(known, id) {
			fits = append(fits, known)
		}
	}
	switch {
	case len(fits) == 0 || id == "":
		return "", notAtWork(id)
	case len(fits) > 1:
		return "", contractError(id, &restart.AmbiguousError{Prefix: restart.PlainText(id, 80), Candidates: fits})
	}
	return fits[0], nil
}

// Attach implements control.Backend.
func (s *supervisor) Attach(ctx context.Context, id string) (control.Attachment, error) {
	s.mu.Lock()
	c, db, ledger := s.current, s.database, s.ledger
	s.mu.Unlock()
	if c == nil || c.over() || c.guard.stopping.Load() {
		return control.Attachment{}, &control.Error{Code: control.CodeRefused, Message: "the server is not running; start it with: intermission start"}
	}
	id, about, err := s.find(ctx, ledger, db, id)
	if err != nil {
		return control.Attachment{}, err
	}
	if info, err := os.Stat(about.Directory); err != nil || !info.IsDir() {
		return control.Attachment{}, &control.Error{Code: control.CodeRefused, Message: "its directory is gone: " + restart.PlainText(about.Directory, 200)}
	}
	argv, env := s.program().Attach(c.Incarnation, id, about.Directory)
	maps.Copy(env, s.surroundings().forTerminal(c.Generation))
	if path := s.program().Path(); path != cleanPath(pathIn(s.Environ)) {
		env["PATH"] = path // what the program is run by was found there
	}
	return control.Attachment{Argv: argv, Dir: about.Directory, Env: env}, nil
}

// pathIn gives the PATH of an environment.
func pathIn(env []string) string { return (&opencode.Install{Env: env}).Path() }

// find gives the session that the server's database has under id, or under the
// unambiguous beginning of an id that is pending or at work.
func (s *supervisor) find(ctx context.Context, ledger *restart.Ledger, db *opencode.Database, id string) (string, restart.Description, error) {
	look := func(id string) (restart.Description, bool, error) {
		found, err := db.Describe(ctx, []string{id})
		about, ok := found[id]
		return about, ok, err
	}
	about, ok, err := look(id)
	if err != nil || ok {
		return id, about, err
	}
	pending, err := ledger.Pending(ctx)
	if err != nil {
		return "", about, err
	}
	ids := s.roster.ids()
	for _, p := range pending {
		ids = append(append(ids, p.ID), p.Children...)
	}
	slices.Sort(ids)
	full, err := named(id, slices.Compact(ids))
	if err == nil {
		about, ok, err = look(full)
	}
	var none *control.Error
	if err == nil && !ok || errors.As(err, &none) && none.Code == control.CodeNotPending {
		err = &control.Error{Code: control.CodeNotPending, Message: fmt.Sprintf("the server has no session %s; see: intermission pending", restart.PlainText(id, 80))}
	}
	return full, about, err
}
