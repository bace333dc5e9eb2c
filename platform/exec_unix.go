//go:build unix

package platform

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// Become runs a program as if it had been called in our place: the terminal, its
// signals and job control are its own, and so is the exit status. env is the whole
// environment. It returns only when that can't be; on Windows, which has no such call,
// when the program has ended: nil, or an *exec.ExitError.
func Become(argv []string, dir string, env []string) error {
	program, err := exec.LookPath(argv[0])
	if err == nil {
		err = os.Chdir(dir)
	}
	if err == nil {
		err = syscall.Exec(program, argv, env)
	}
	return fmt.Errorf("cannot run %s: %w", argv[0], err)
}
