package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"intermission/restart"
	"intermission/supervisor/control"
)

// titles is what sessions at work are called and where they are, as the server's
// database said last. It is best effort: what isn't known is "".
type titles struct {
	looking sync.Mutex // who comes second doesn't wait, and takes what is known

	mu      sync.Mutex
	known   map[string]title
	failed  time.Time // when the database last could not be asked
	awaited bool      // somebody came second
}

type title struct {
	title, directory string
	at               time.Time // when it was looked up
	started          int64     // the execution that it was looked up for
}

const (
	titleLasts   = 30 * time.Second // before a title is looked up again
	titleTimeout = time.Second      // a status must not wait for the server's database
)

// of gives what is known of a session.
func (t *titles) of(id string) title {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[id]
}

// due gives the sessions to be looked up, and forgets those that neither work nor are asked for.
func (t *titles) due(working []control.Working, more []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.failed.IsZero() && time.Since(t.failed) < titleLasts {
		return nil
	}
	keep, due := map[string]title{}, slices.Clone(more)
	for _, w := range working {
		known, ok := t.known[w.ID]
		if ok {
			keep[w.ID] = known
		}
		if known.started != w.StartedAt || time.Since(known.at) >= titleLasts {
			due = append(due, w.ID)
		}
	}
	t.known = keep
	return due
}

// learn takes in what was found of the sessions at work. It tells whether one is
// called otherwise than was said before, or somebody didn't wait for it.
func (t *titles) learn(working []control.Working, due []string, found map[string]restart.Description) (renamed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	renamed, t.awaited = t.awaited, false
	for _, w := range working {
		if !slices.Contains(due, w.ID) {
			continue
		}
		before, said := t.known[w.ID]
		now := title{plainTitle(found[w.ID]), found[w.ID].Directory, time.Now(), w.StartedAt}
		t.known[w.ID] = now
		renamed = renamed || said && (now.title != before.title || now.directory != before.directory)
	}
	return renamed
}

// missed notes that the database can't be asked.
func (t *titles) missed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = time.Now()
}

func plainTitle(d restart.Description) string {
	return restart.PlainText(d.Title, 200)
}

// titlePause is between look-ups that are made for what sessions do.
const titlePause = time.Second

// attendTitles looks up the titles of sessions at work: one comes or changes in the
// course of the work.
func (s *supervisor) attendTitles(ctx context.Context, c *incarnation) {
	for {
		select {
		case <-c.moved:
			s.refreshTitles(ctx)
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(titlePause):
		case <-ctx.Done():
			return
		}
	}
}

// refreshTitles looks up what is due: each session when it has started, and then
// each 30 s at most while somebody looks or it does something. It takes 1 s at most,
// and nobody waits while another looks.
func (s *supervisor) refreshTitles(ctx context.Context) {
	t := &s.titles
	if !t.looking.TryLock() {
		t.mu.Lock()
		t.awaited = true
		t.mu.Unlock()
		return
	}
	defer t.looking.Unlock()
	s.mu.Lock()
	db := s.database
	s.mu.Unlock()
	working, untitled := s.roster.list(), s.outcomes.untitled()
	due := t.due(working, untitled)
	if db == nil || len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, titleTimeout)
	defer cancel()
	found, err := db.Describe(ctx, due)
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) { // else who asked has gone away
			t.missed()
			s.Log.Warn("the titles of sessions are not known", "error", err)
		}
		return
	}
	s.outcomes.entitle(untitled, found)
	if t.learn(working, due, found) {
		s.notify()
	}
}

// working gives who works, with what is known of each.
func (s *supervisor) working() []control.Working {
	list := s.roster.list()
	for i := range list {
		known := s.titles.of(list[i].ID)
		list[i].Title, list[i].Directory = known.title, known.directory
	}
	return list
}
