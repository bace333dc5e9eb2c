package supervisor

import (
	"context"
	"slices"
	"time"

	"intermission/platform"
)

// sweepProcesses ends what the server left behind: tools outlive it, in sessions
// of their own. A server that has registered meanwhile is spared, even if a tool
// of ours started it.
func (s *supervisor) sweepProcesses(r record) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), 10*time.Second)
	defer cancel()
	for {
		left, err := platform.Tree(ctx, r.Identity, r.marker())
		if err != nil {
			s.Log.Error("cannot look for what the server left behind", "error", err)
			return
		}
		left = slices.DeleteFunc(left, s.successor(ctx, r))
		if len(left) == 0 {
			return
		}
		s.Log.Info("ending what the server left behind", "processes", len(left))
		// What is ended may have started more in the meantime: look again.
		if stay := platform.KillTree(ctx, left, toolGrace); len(stay) > 0 {
			s.Log.Error("processes of the server stay", "processes", stay)
			return
		}
	}
}

// successor tells which processes belong to another registered server than r.
func (s *supervisor) successor(ctx context.Context, r record) func(platform.Identity) bool {
	var theirs []platform.Identity
	if inc, err := s.program().Discover(ctx); err == nil && inc.ID != r.ID && (r.Ready || !r.owns(inc.PID)) {
		if id, err := platform.Identify(inc.PID); err == nil {
			theirs, _ = platform.Tree(ctx, id, "")
		}
	}
	return func(id platform.Identity) bool { return slices.Contains(theirs, id) }
}

// toolGrace is how long a tool may take to end at SIGTERM.
const toolGrace = 2 * time.Second
