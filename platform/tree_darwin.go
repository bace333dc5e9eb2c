package platform

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Tree gives the live processes that descend from root, in whatever session or
// group, root first. The marker is not used: macOS hides the environment of
// protected programs, and half a list would mislead. The calling process is never in it.
func Tree(ctx context.Context, root Identity, _ string) ([]Identity, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	rows, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	all := make([]process, 0, len(rows))
	for i := range rows {
		k := &rows[i]
		if k.Proc.P_stat != sZombie {
			all = append(all, process{id: identityOf(k, boot), parent: int(k.Eproc.Ppid), start: startMicros(k)})
		}
	}
	var ids []Identity
	for _, p := range descend(all, root) {
		if p.id.PID != os.Getpid() {
			ids = append(ids, p.id)
		}
	}
	return ids, nil
}

// FindsOrphans says whether Tree finds, by the marker, processes whose parent has ended.
const FindsOrphans = false
