package platform

import (
	"context"
	"slices"
	"time"
)

// killWait bounds the wait for processes that were killed; only one that hangs in the kernel takes longer.
const killWait = 2 * time.Second

// process is one row of a snapshot of all processes.
type process struct {
	id     Identity
	parent int
	start  uint64 // orders starts within one boot
}

// descend gives root, when it is in the snapshot, and everything below it,
// parents first. A child that is older than its parent is not its child: the
// parent's pid was used again.
func descend(all []process, root Identity) []process {
	at := slices.IndexFunc(all, func(p process) bool { return p.id == root })
	if at < 0 {
		return nil
	}
	children := make(map[int][]process)
	for _, p := range all {
		if p.parent != p.id.PID {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	tree := []process{all[at]}
	seen := map[int]bool{root.PID: true}
	for i := 0; i < len(tree); i++ {
		for _, c := range children[tree[i].id.PID] {
			if !seen[c.id.PID] && c.start >= tree[i].start {
				seen[c.id.PID] = true
				tree = append(tree, c)
			}
		}
	}
	return tree
}

// KillTree ends the processes: it asks all of them to terminate, waits at most
// grace for them to end, and kills the rest. Each proves its identity before each
// signal. It returns those that still run after that. When ctx ends, the grace
// ends. A process may have had children meanwhile: call Tree again.
func KillTree(ctx context.Context, ids []Identity, grace time.Duration) (left []Identity) {
	for _, id := range ids {
		_ = id.Signal(Terminate) // one that can't be signalled is still among those left
	}
	wait, cancel := context.WithTimeout(ctx, grace)
	rest := waitEnded(wait, ids)
	cancel()
	if len(rest) == 0 {
		return nil
	}
	for _, id := range rest {
		_ = id.Signal(Kill)
	}
	wait, cancel = context.WithTimeout(context.WithoutCancel(ctx), killWait)
	defer cancel()
	return waitEnded(wait, rest)
}

// waitEnded waits until all have ended or ctx does, and gives those that still run.
func waitEnded(ctx context.Context, ids []Identity) (left []Identity) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, id := range ids {
		done, err := Watch(ctx, id)
		if err != nil {
			continue // can't be watched; Alive below decides
		}
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	for _, id := range ids {
		if id.Alive() {
			left = append(left, id)
		}
	}
	return left
}
