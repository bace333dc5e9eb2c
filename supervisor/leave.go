package supervisor

import (
	"context"
	"os"

	"intermission/supervisor/control"
)

// Leave implements control.Backend: where a service manager could only kill us, who
// stops the service says it to us. The answer comes before the end, for that takes as
// long as the server's stop.
func (s *supervisor) Leave(context.Context) (control.Ending, error) {
	return control.Ending{PID: os.Getpid(), Lock: s.Paths.InstanceLock}, s.submit(Input{Kind: InLeave})
}
