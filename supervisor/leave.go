package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"intermission/supervisor/control"
)

// Leave implements control.Backend: where a service manager could only kill us, who
// stops the service says it to us. The answer comes before the end, for that takes as
// long as the server's stop.
func (s *supervisor) Leave(ctx context.Context) (control.Ending, error) {
	if err := s.MayLeave(ctx); err != nil {
		return control.Ending{}, err
	}
	return control.Ending{PID: os.Getpid(), Lock: s.Paths.InstanceLock}, s.submit(Input{Kind: InLeave})
}

// MayLeave implements control.Backend. A service manager's word can't be refused, so
// that who stops the service by us asks before.
func (s *supervisor) MayLeave(context.Context) error {
	if err := s.unguarded(); err != nil {
		return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("not stopped, for this supervisor keeps the server from being started while what is unfinished can't be parked, and who starts it afterwards would have it all resumed: %s", s.reason())}
	}
	if !s.serving() {
		return nil
	}
	err := s.proveRoom()
	if info, missing := os.Stat(s.Paths.Ledger); err == nil && (missing != nil || !info.Mode().IsRegular()) {
		err = fmt.Errorf("%s isn't there any more", s.Paths.Ledger)
	}
	if err != nil {
		return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("not stopped: what the server works on could not be written down (%v); see that %s is writable, with room on its disk, and try again", err, filepath.Dir(s.Paths.Ledger))}
	}
	return nil
}

// reason is why the server isn't running.
func (s *supervisor) reason() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Reason
}
