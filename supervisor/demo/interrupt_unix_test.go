//go:build unix

package demo

import (
	"bufio"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C at the worst moment: supervisor, server and a tool are running.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	r := newRun(t, "--yes")
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	supervised, sent := false, false
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		supervised = supervised || lines.Text() == "With intermission"
		if supervised && !sent && strings.Contains(lines.Text(), "Deploy the shop") {
			if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
			sent = true
		}
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); !sent || !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(r.stderr.String(), "the demo was stopped") {
		t.Errorf("signalled %v, ended with %v: %s", sent, err, &r.stderr)
	}
	r.leavesNothing(t)
}
