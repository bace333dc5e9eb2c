package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Tree gives the live processes that descend from root, in whatever session or
// group, root first. With a marker ("NAME=value"; "" for none) it also gives
// every process of ours that was started with that entry in its environment:
// orphans have another parent now. The calling process is never in it.
func Tree(ctx context.Context, root Identity, marker string) ([]Identity, error) {
	all, err := snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	self := os.Getpid()
	in := make(map[int]bool)
	var ids []Identity
	for _, p := range descend(all, root) {
		in[p.id.PID] = true
		if p.id.PID != self {
			ids = append(ids, p.id)
		}
	}
	if marker == "" {
		return ids, nil
	}
	uid := uint32(os.Geteuid())
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.id.PID != self && !in[p.id.PID] && owned(p.id.PID, uid) && marked(p.id.PID, marker) {
			ids = append(ids, p.id)
		}
	}
	return ids, nil
}

// snapshot reads every live process once. Those that vanish meanwhile are left out.
func snapshot(ctx context.Context) ([]process, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	_ = d.Close()
	if err != nil {
		return nil, err
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		// Where /proc is mounted with hidepid, those of other users can't be read.
		if errors.Is(err, ErrNoProcess) || errors.Is(err, fs.ErrPermission) || s.ended() {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, process{id: s.identity(pid, boot), parent: s.ppid, start: s.start})
	}
	return all, nil
}

// owned tells whether the process runs as the user.
func owned(pid int, uid uint32) bool {
	var st syscall.Stat_t
	return syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid == uid
}

// marked tells whether the process was started with the entry in its environment.
func marked(pid int, marker string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || !bytes.Contains(env, []byte(marker)) {
		return false
	}
	return slices.ContainsFunc(bytes.Split(env, []byte{0}), func(e []byte) bool { return string(e) == marker })
}

// FindsOrphans says whether Tree finds, by the marker, processes whose parent has ended.
const FindsOrphans = true
