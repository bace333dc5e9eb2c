//go:build unix

package platform

import (
	"context"
	"io/fs"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commonPrograms are directories for programs that may not be on PATH.
func commonPrograms(getenv func(string) string) []string {
	dirs := []string{"/usr/local/bin", "/usr/bin", "/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/run/current-system/sw/bin", "/nix/var/nix/profiles/default/bin"}
	if user := getenv("USER"); user != "" {
		dirs = append(dirs, "/etc/profiles/per-user/"+user+"/bin")
	}
	return dirs
}

func isProgram(info fs.FileInfo) bool { return info.Mode().IsRegular() && info.Mode()&0o111 != 0 }

// runsFrom runs a program in dir, silently, and ends all of it with ctx.
func runsFrom(ctx context.Context, dir, program string, args []string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd.Run()
}
