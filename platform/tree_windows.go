package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Tree gives the live processes that descend from root, and those of the job that
// Start made for it, root first. The marker is not used: the job finds orphans.
// The calling process is never in it.
func Tree(ctx context.Context, root Identity, _ string) ([]Identity, error) {
	all, err := snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	in := map[int]bool{os.Getpid(): true}
	var ids []Identity
	add := func(id Identity) {
		if !in[id.PID] {
			in[id.PID] = true
			ids = append(ids, id)
		}
	}
	for _, p := range descend(all, root) {
		add(p.id)
	}
	for _, pid := range jobMembers(root) {
		if id, err := Identify(pid); err == nil {
			add(id)
		}
	}
	return ids, nil
}

// snapshot lists every process that we may look at.
func snapshot(ctx context.Context) ([]process, error) {
	s, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = windows.CloseHandle(s) }()
	var all []process
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(s, &entry); err == nil; err = windows.Process32Next(s, &entry) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p, ok := look(int(entry.ProcessID)); ok {
			p.parent = int(entry.ParentProcessID)
			all = append(all, p)
		}
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return nil, err
	}
	return all, nil
}

func look(pid int) (process, bool) {
	h, err := openProcess(pid, 0)
	if err != nil {
		return process{}, false
	}
	defer func() { _ = windows.CloseHandle(h) }()
	event, err := windows.WaitForSingleObject(h, 0)
	if err != nil || event == windows.WAIT_OBJECT_0 {
		return process{}, false
	}
	ticks, err := startTicks(h)
	return process{id: identityFrom(pid, ticks), start: ticks}, err == nil
}

// jobMax bounds the processes of one job that are listed at once; Tree is called again until none is left.
const jobMax = 1024

// processIDList is JOBOBJECT_BASIC_PROCESS_ID_LIST of <winnt.h>.
type processIDList struct {
	Assigned uint32
	Listed   uint32
	IDs      [jobMax]uintptr
}

func jobMembers(root Identity) []int {
	name, err := jobName(root)
	if err != nil {
		return nil
	}
	// It opens the job, or makes an empty one that goes with the handle.
	job, err := windows.CreateJobObject(nil, name)
	if err != nil {
		return nil
	}
	defer func() { _ = windows.CloseHandle(job) }()
	var list processIDList
	err = windows.QueryInformationJobObject(job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return nil
	}
	pids := make([]int, 0, list.Listed)
	for _, id := range list.IDs[:min(list.Listed, jobMax)] {
		pids = append(pids, int(id))
	}
	return pids
}

// FindsOrphans says whether Tree finds, by the marker, processes whose parent has ended.
const FindsOrphans = false
