package platform

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// detach needs no list of descriptors: Go passes on exactly those of the command.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW,
	}
}

// jobName is where the next supervisor finds the job of a process.
func jobName(id Identity) (*uint16, error) {
	return windows.UTF16PtrFromString(fmt.Sprintf(`Local\%s-job-%d-%s`, app, id.PID, id.Start))
}

// contain puts the process into a named job, which its children join by
// themselves: Tree finds them even when their parents are gone. The job kills
// nobody when we end. The process holds a handle of it, or the name would end
// with us. Without a job Tree still goes by parents, so a failure is not fatal.
func contain(id Identity) error {
	h, err := openIdentity(id, windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE|windows.PROCESS_DUP_HANDLE)
	if err != nil {
		return nil // ended already
	}
	defer func() { _ = windows.CloseHandle(h) }()
	name, err := jobName(id)
	if err != nil {
		return err
	}
	job, err := windows.CreateJobObject(nil, name)
	if err != nil {
		return nil
	}
	defer func() { _ = windows.CloseHandle(job) }()
	if windows.AssignProcessToJobObject(job, h) == nil {
		var theirs windows.Handle
		_ = windows.DuplicateHandle(windows.CurrentProcess(), job, h, &theirs, 0, false, windows.DUPLICATE_SAME_ACCESS)
	}
	return nil
}

// endSignal is always empty: Windows knows exit codes only.
func endSignal(*os.ProcessState) string { return "" }
