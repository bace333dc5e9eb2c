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

// contain has nothing to do here: detach has asked for the session.
func contain(Identity) error { return nil }

func endSignal(s *os.ProcessState) string {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return unix.SignalName(ws.Signal())
	}
	return ""
}
