package supervisor

import (
	"context"
	"fmt"
)

// StopLeft stops a server in order whose supervisor is gone: it takes it over as a
// supervisor would, suspends what is at work, stops it, parks, and returns. Where none
// was left it parks, and starts nothing. The wish stays as it is. It fails as Run does,
// and when the server lives on.
func StopLeft(ctx context.Context, o Options) error {
	o.finish = true
	if err := Run(ctx, o); err != nil {
		return err
	}
	if pid, alive := LivingServer(o.Paths); alive {
		return fmt.Errorf("the server (pid %d) works on without a supervisor, and can't be stopped in order; see why with: intermission run", pid)
	}
	return nil
}
