package supervisor

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// watchRegistrations tells of servers that others start while none is managed:
// the user's terminal interface starts one when it finds none. It begins once
// the program is known, and ends with the supervisor.
func (s *supervisor) watchRegistrations() {
	if s.watching || s.program().Generation != opencode.V2 {
		return
	}
	dir := s.program().RegistrationDir()
	w, err := fsnotify.NewWatcher()
	if err == nil {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			err = w.Add(dir)
		}
	}
	if err != nil {
		s.Log.Warn("servers that others start will not be noticed", "directory", dir, "error", err)
		return
	}
	s.watching = true
	s.workers.Go(func() {
		defer w.Close()
		for {
			select {
			case <-s.life.Done():
				return
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				if strings.HasSuffix(e.Name, ".lock") {
					s.shieldLock()
					continue
				}
			case <-w.Errors: // an overflow: look as after any event
			}
			s.guardStranger()
			s.lookForSuccessor()
		}
	})
}

// shieldLock takes the server's lock by its name when that isn't the one the living
// server holds: somebody has removed the file.
func (s *supervisor) shieldLock() {
	s.mu.Lock()
	c, install := s.current, s.install
	s.mu.Unlock()
	if c == nil || c.over() {
		return
	}
	lock, err := platform.TryServerLock(install.LockPath())
	if err != nil {
		return // held, as it should be
	}
	s.Log.Warn("the server's lock file was removed; holding another one in its place", "path", install.LockPath())
	if before := c.shield.Swap(lock); before != nil {
		s.release(before)() // its file was removed too
	}
	if c.concluded() {
		s.dropShield(c)
	}
}

// dropShield lets go of a shield once the end of its server has been dealt with;
// if that could not be parked, it keeps everybody out from now on.
func (s *supervisor) dropShield(c *incarnation) {
	shield := c.shield.Swap(nil)
	if shield == nil {
		return
	}
	if c.guard.err != nil {
		s.mu.Lock()
		keep := s.held == nil
		if keep {
			s.held = shield
		}
		s.mu.Unlock()
		if keep {
			return
		}
	}
	s.release(shield)()
}

// guardStranger stands guard over a server that registered while the end of ours
// is still being dealt with: its tools may take seconds to end, and the successor
// can die meanwhile.
func (s *supervisor) guardStranger() {
	s.mu.Lock()
	ending := s.current != nil && s.current.ended() && s.database != nil
	s.mu.Unlock()
	if ending {
		s.standGuard()
	}
}

// lookForSuccessor reports a living server while none is managed.
func (s *supervisor) lookForSuccessor() {
	s.mu.Lock()
	install, idle := s.install, s.current == nil
	switch s.state.Phase {
	case Stopped, Failed, Backoff, Blocked:
	default:
		idle = false
	}
	s.mu.Unlock()
	if !idle || install == nil || install.Generation != opencode.V2 {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, 5*time.Second)
	defer cancel()
	_, err := install.Discover(ctx)
	if incumbent := new(opencode.IncumbentError); err == nil || errors.As(err, &incumbent) {
		s.report(Input{Kind: InAppear})
	}
}
