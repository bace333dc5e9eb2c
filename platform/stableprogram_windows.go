package platform

import (
	"context"
	"io/fs"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

// commonPrograms are directories for programs that may not be on PATH.
func commonPrograms(getenv func(string) string) []string {
	var dirs []string
	if local := getenv("LOCALAPPDATA"); local != "" {
		dirs = append(dirs, filepath.Join(local, "Microsoft", "WinGet", "Links"))
	}
	if home := getenv("USERPROFILE"); home != "" {
		dirs = append(dirs, filepath.Join(home, "scoop", "shims"))
	}
	return dirs
}

func isProgram(info fs.FileInfo) bool { return info.Mode().IsRegular() }

// runsFrom runs a program in dir, silently and without a console window.
func runsFrom(ctx context.Context, dir, program string, args []string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NO_WINDOW, HideWindow: true}
	cmd.WaitDelay = time.Second
	return cmd.Run()
}
