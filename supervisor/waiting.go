package supervisor

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"intermission/restart"
)

// asked is of which sessions something has to be found out. Unlike a channel it drops
// none and holds nobody up, however many come.
type asked struct {
	mu       sync.Mutex
	sessions map[string]string // session → its directory, "" where it isn't known
	due      chan struct{}     // holds one when there are any
}

func newAsked() *asked {
	return &asked{sessions: map[string]string{}, due: make(chan struct{}, 1)}
}

// add takes in sessions, with their directories where they are known.
func (a *asked) add(directory string, ids ...string) {
	if len(ids) == 0 {
		return
	}
	a.mu.Lock()
	for _, id := range ids {
		if directory != "" || a.sessions[id] == "" {
			a.sessions[id] = directory
		}
	}
	a.mu.Unlock()
	wake(a.due)
}

// take gives what was added, once.
func (a *asked) take() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.sessions
	a.sessions = map[string]string{}
	return list
}

// attendAsked notes what sessions wait for, whenever that may have changed: it is
// shown, and after a crash nobody could tell.
func (s *supervisor) attendAsked(ctx context.Context, c *incarnation) {
	for {
		select {
		case <-c.asked.due:
			s.noteWaiting(ctx, c, c.asked.take())
		case <-ctx.Done():
			return
		}
	}
}

// attendBegun notes whose subagents sessions are while they are at work, so that their
// suspensions are shown under their heads at once, and counted as one.
func (s *supervisor) attendBegun(ctx context.Context, c *incarnation) {
	ledger, _ := s.book()
	for {
		select {
		case <-c.begun.due:
		case <-ctx.Done():
			return
		}
		parents, err := s.database.Parents(ctx, slices.Collect(maps.Keys(c.begun.take())))
		if err == nil {
			err = ledger.SetParents(ctx, parents)
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("whose subagents sessions are is not known", "error", err)
		}
	}
}

// noteWaiting notes what these sessions (session → directory) wait for.
func (s *supervisor) noteWaiting(ctx context.Context, c *incarnation, sessions map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	executions := map[string]int64{}
	for id := range sessions {
		executions[id] = s.roster.started(id)
	}
	waiting := s.waiting(ctx, c, sessions)
	if c.guard.stopping.Load() {
		return // the stop withdraws what they wait for, and has asked before that
	}
	ledger, _ := s.book()
	if err := ledger.SetWaiting(ctx, waiting); err != nil && ctx.Err() == nil {
		s.Log.Warn("what sessions wait for could not be written to the ledger", "error", err)
	}
	for id, what := range waiting {
		s.roster.wait(id, executions[id], what)
	}
}

// waiting asks what each of these sessions (session → directory) waits for. Who
// doesn't answer is left out.
func (s *supervisor) waiting(ctx context.Context, c *incarnation, sessions map[string]string) map[string]string {
	var homeless []string
	for id, directory := range sessions {
		if directory == "" {
			homeless = append(homeless, id)
		}
	}
	var about map[string]restart.Description
	if len(homeless) > 0 {
		var err error
		if about, err = s.database.Describe(ctx, homeless); err != nil && ctx.Err() == nil {
			s.Log.Warn("the directories of active sessions are not known", "error", err)
		}
	}
	var mu sync.Mutex
	waiting := map[string]string{}
	var ask errgroup.Group
	ask.SetLimit(8)
	for id, directory := range sessions {
		if directory == "" {
			directory = about[id].Directory
		}
		ask.Go(func() error {
			what, err := c.client.Waiting(ctx, id, directory)
			if err != nil {
				if ctx.Err() == nil {
					s.Log.Warn("what a session waits for is not known", "session", id, "error", err)
				}
				return nil
			}
			mu.Lock()
			waiting[id] = what
			mu.Unlock()
			return nil
		})
	}
	_ = ask.Wait() // none fails
	return waiting
}
