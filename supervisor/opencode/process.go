package opencode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxOutput bounds what is read of a program that is asked for its version.
const maxOutput = 64 << 10

// alive tells whether a process has this pid. It may be any program's.
func alive(pid int) bool {
	process, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = process.Release() }()
	err = process.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}

// run gives what a short-lived program prints on its standard output.
func run(ctx context.Context, program string, args []string, env []string, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Dir = env, dir
	cmd.WaitDelay = time.Second
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &capped{w: &out}, &capped{w: &problems}
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(problems.String()); said != "" {
			return "", fmt.Errorf("%w: %s", err, said)
		}
		return "", err
	}
	return out.String(), nil
}

// capped passes the first maxOutput bytes and swallows the rest.
type capped struct {
	w    io.Writer
	seen int
}

func (c *capped) Write(p []byte) (int, error) {
	if room := maxOutput - c.seen; room > 0 {
		n, err := c.w.Write(p[:min(room, len(p))])
		c.seen += n
		if err != nil {
			return n, err
		}
	}
	return len(p), nil
}
