package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"intermission/restart"
)

// StopLeft stops a server in order whose supervisor is gone: it takes it over as a
// supervisor would, suspends what is at work, stops it, parks, and returns. Where none
// was left it parks, and starts nothing. The wish stays as it is. It fails as Run does,
// and when the server lives on.
func StopLeft(ctx context.Context, o Options) error {
	o.finish = true
	var s *supervisor
	o.reveal = func(now *supervisor) { s = now }
	if err := Run(ctx, o); err != nil {
		return err
	}
	pid, alive := LivingServer(o.Paths)
	if !alive {
		return nil
	}
	reason := strings.TrimSuffix(s.reason(), restart.ThenStart) // there is no supervisor to start it
	if reason == "" {
		return fmt.Errorf("the server (pid %d) works on without a supervisor, and can't be stopped in order; see why with: intermission run", pid)
	}
	return errors.New(reason + ", and stop it again")
}
