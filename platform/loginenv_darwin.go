package platform

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// recordedShell is macOS's own default: launchd sets SHELL for whatever it starts for a user.
func recordedShell(int) string { return "/bin/zsh" }

// runningProgram is the file that the process executes, "" where that can't be told.
// It stands behind the number of arguments, of 4 bytes (sysctl(3), KERN_PROCARGS2).
func runningProgram(pid int) string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	path, _, _ := bytes.Cut(b[4:], []byte{0})
	return string(path)
}
