package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

// Become runs a program in our terminal and waits for its end, for Windows knows no
// way to be replaced by it; Ctrl-C is left to it. env is the whole environment. Its
// error is an *exec.ExitError when the program ran and didn't exit with 0.
func Become(argv []string, dir string, env []string) error {
	program, err := exec.LookPath(argv[0])
	if err == nil {
		err = checkBatch(append([]string{program}, argv[1:]...))
	}
	if err == nil {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		cmd := exec.Command(program, argv[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, env, os.Stdin, os.Stdout, os.Stderr
		err = cmd.Run()
	}
	if exit := (*exec.ExitError)(nil); err == nil || errors.As(err, &exit) {
		return err
	}
	return fmt.Errorf("cannot run %s: %w", argv[0], err)
}
