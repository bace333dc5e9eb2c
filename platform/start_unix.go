//go:build unix

package platform

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

func detach(cmd *exec.Cmd) {
	closeOnExec()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// adopted has nothing to do here: the session was made by detach.
func adopted(Identity) error { return nil }

func endSignal(s *os.ProcessState) string {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return unix.SignalName(ws.Signal())
	}
	return ""
}
