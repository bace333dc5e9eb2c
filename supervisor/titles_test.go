package supervisor

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"intermission/restart"
	"intermission/supervisor/opencode"
)

// A status doesn't wait behind a look-up of titles that is slow, and whoever watches
// is told of what that has found.
func TestNobodyWaitsForAnothersLookUp(t *testing.T) {
	t.Parallel()
	db, err := opencode.OpenDatabase(filepath.Join(t.TempDir(), "opencode.db"), opencode.V2)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := &supervisor{Options: Options{Log: slog.New(slog.DiscardHandler)}, roster: newRoster(func() {}), database: db, changed: make(chan struct{})}
	defer s.roster.clear()
	told := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return closed(s.changed)
	}
	work := func(id string) {
		s.roster.observe(restart.Event{Kind: restart.EventStarted, Session: id})
		was := s.changed
		s.refreshTitles(t.Context())
		if closed(was) != (id == "ses_2") {
			t.Errorf("%s: told %v", id, closed(was))
		}
	}
	work("ses_1") // whoever looks it up shows it
	s.titles.looking.Lock()
	second := make(chan struct{})
	go func() {
		defer close(second)
		if _, err := s.Status(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-second:
	case <-time.After(10 * time.Second):
		t.Fatal("a status waits for another's look-up")
	}
	s.titles.looking.Unlock()
	work("ses_2") // the first goes on
	if told() {
		t.Error("told more than once")
	}
}
