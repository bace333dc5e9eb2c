package supervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// findProgram looks for the program and asks it for its version.
func (s *supervisor) findProgram(ctx context.Context) (*opencode.Install, error) {
	return opencode.Locate(ctx, opencode.Config{
		Command:    s.Config.Server.Command,
		Generation: s.Config.Server.Generation,
		Port:       s.Config.Server.Port,
		Env:        s.environ(),
	}, s.surroundings().loginPath())
}

// guise is the program as a living server has it that was started by another version
// of it: its lock, its registration and its database are where that version has them,
// which may differ by generation and release channel. nil where there is no difference.
func guise(found *opencode.Install, r record) *opencode.Install {
	if r.Generation == "" || !r.Ready || !r.Identity.Alive() {
		return nil
	}
	g := *found
	g.Generation = r.Generation
	if r.version() != "" {
		g.Version = r.version()
	}
	db, err := found.DatabasePath()
	other, err2 := g.DatabasePath()
	if err == nil && err2 == nil && g.Generation == found.Generation && g.LockPath() == found.LockPath() && db == other {
		return nil
	}
	return &g
}

// newest is the program as it is in place, as far as that is known; nil before. s.mu is held.
func (s *supervisor) newest() *opencode.Install {
	if s.offered != nil {
		return s.offered
	}
	return s.install
}

// available is the version in place when the server runs another one, else "". s.mu is held.
func (s *supervisor) available(c *incarnation) string {
	found := s.newest()
	if c == nil || found == nil || c.version() == "" || found.Version == c.version() {
		return ""
	}
	return found.Version
}

// watchProgram notices when the server's program is replaced, until the supervisor ends.
func (s *supervisor) watchProgram() {
	look := &looking{}
	err := replacement{
		files: func() []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			var files []string
			for _, i := range []*opencode.Install{s.install, s.offered} {
				if i != nil {
					files = append(files, i.Program)
				}
			}
			return files
		},
		again: s.located, settle: s.Policy.Settle,
		look: func() time.Duration { return s.lookAtProgram(look) },
	}.watch(s.life)
	if err != nil {
		s.Log.Warn("an upgrade of the server will be noticed at its next start only", "error", err)
	}
}

// looking is what watchProgram remembers between looks.
type looking struct {
	failed int    // fruitless ones in a row
	moved  string // another program that was found while the one of before is missing
}

// movedPatience is how long a program may be missing while an installer replaces it,
// before another one, found elsewhere, takes its place.
const movedPatience = time.Minute

// lookAtProgram finds out whether another version is in place. What can't tell its
// version is none.
func (s *supervisor) lookAtProgram(l *looking) time.Duration {
	s.mu.Lock()
	before, lacking := s.newest(), s.lacking
	s.mu.Unlock()
	if before == nil || before.Fresh() && !lacking {
		l.failed, l.moved = 0, ""
		return 0
	}
	found, err := s.findProgram(s.life)
	if err != nil {
		if l.failed == 0 && s.life.Err() == nil {
			s.Log.Info("the server's program was changed, and can't be used (yet)", "program", before.Program, "error", err)
		}
		l.failed++
		return retry(l.failed - 1)
	}
	l.failed = 0
	if _, err := os.Stat(before.Program); found.Program != before.Program && errors.Is(err, fs.ErrNotExist) && l.moved != found.Program {
		l.moved = found.Program
		return movedPatience
	}
	l.moved = ""
	if !found.Fresh() {
		return retry(0) // it was changed while it was asked
	}
	s.offer(found)
	return 0
}

// offer notes the program in place, for the next start.
func (s *supervisor) offer(found *opencode.Install) {
	s.mu.Lock()
	was := s.available(s.current)
	s.offered, s.lacking = found, false
	now, failed := s.available(s.current), s.state.Phase == Failed
	s.mu.Unlock()
	wake(s.located) // it may be elsewhere
	if was != now {
		if now != "" {
			s.Log.Info("another version of the server is in place", "program", found.Program, "version", now)
		}
		s.notify()
	}
	if failed {
		s.report(Input{Kind: InUpgrade})
	}
}

// attendUpgrades restarts a server of ours when another version is in place and nothing
// is active, at once or as soon as nothing has been for Policy.Quiet.
func (s *supervisor) attendUpgrades() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		pause.Stop()
		if again := s.upgrade(); again > 0 {
			pause.Reset(again)
		}
		select {
		case <-changed:
		case <-pause.C:
		case <-s.life.Done():
			return
		}
	}
}

// roomPause is how long after an upgrade is put off for want of room it is tried again.
const roomPause = time.Minute

// upgrade restarts the server with the version in place if that is due. It returns
// after how long it is to be asked again; 0 is at the next change of what is shown.
func (s *supervisor) upgrade() time.Duration {
	s.mu.Lock()
	c, st, version := s.current, s.state, s.available(s.current)
	s.mu.Unlock()
	if version == "" || st.Phase != Running || st.Wish != WishRunning || st.Leaving || c.over() {
		return 0
	}
	if st.Reason != "" {
		return 0 // a stop was given up, and whoever reads why tries again
	}
	if !c.ours() {
		return 0 // who started it wants that version, and may replace ours by it again
	}
	if len(s.roster.ids()) > 0 {
		return 0
	}
	if quiet := s.Policy.Quiet - s.roster.idle(); quiet > 0 {
		return quiet
	}
	why := "the server is being restarted to use OpenCode " + version
	s.consents.close(why) // one that came now would be delivered to a server that is about to end
	defer s.consents.open(why)
	if !closed(s.consents.drained()) {
		return 0 // what came of them is told
	}
	if wait, again := s.undecided(); wait {
		return again
	}
	if !s.inactive(c) {
		return max(s.Policy.Quiet, askTimeout)
	}
	if s.proveRoom() != nil {
		return roomPause // the stop would be given up
	}
	s.Log.Info("nothing is active: the server is restarted to use the version in place", "version", version, "is", c.version())
	s.report(Input{Kind: InUpgrade, Reason: "it is restarted to use OpenCode " + version + " instead of " + c.version()})
	for {
		s.mu.Lock()
		changed, phase := s.changed, s.state.Phase
		s.mu.Unlock()
		if phase != Stopping {
			return askTimeout
		}
		select {
		case <-changed:
		case <-s.life.Done():
			return 0
		}
	}
}

// inactive asks the server itself, and its database, whether anything in it would be
// lost by a stop: who executes, and what works in the background.
func (s *supervisor) inactive(c *incarnation) bool {
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	if len(s.roster.ids()) > 0 {
		return false
	}
	if active, err := c.client.Active(ctx); err != nil || len(active) > 0 {
		return false
	}
	s.mu.Lock()
	db := s.database
	s.mu.Unlock()
	sweep, err := db.Sweep(ctx)
	return err == nil && len(sweep.Claims)+len(sweep.Jobs) == 0
}

// haltInactive halts the server only if still nothing is active in it. A session that
// begins after that is suspended like any other, and waits for consent.
func (s *supervisor) haltInactive(seq uint64) Input {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c == nil || s.inactive(c) {
		return s.halt()
	}
	// Its end is reported to this act from now on, unless it has come already.
	c.seq.Store(seq)
	if c.over() {
		return s.halt()
	}
	s.Log.Info("a session has begun: the server is not restarted now")
	return Input{Kind: InBusy}
}

// shown gives the status its versions in place. s.mu is held.
func (s *supervisor) shown(status *control.Status) {
	if s.Fault != nil {
		status.Supervisor.Fault = s.Fault.Error()
	}
	status.Supervisor.Available, status.Supervisor.Waits = s.newer, s.waits
	if s.newer != "" && s.waits == "" && s.keepsLock() {
		status.Supervisor.Waits = "what is unfinished can't be parked, as the server's reason says; once it is, this is used by itself"
	}
	status.Server.Available = s.available(s.current)
}
