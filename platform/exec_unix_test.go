//go:build unix

package platform

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func init() { roles["become"] = roleBecome }

func roleBecome(args []string) error {
	return Become(args[1:], args[0], []string{"ONLY=this"})
}

func TestBecome(t *testing.T) {
	t.Parallel()
	become := func(args ...string) (string, int) {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), roleVariable+"=become", "OTHER=that")
		cmd.Stdin = strings.NewReader("typed\n")
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := become("/", "/bin/sh", "-c", `read line; echo "$0 in $PWD with $ONLY$OTHER, $line"; exit 7`, "a name")
	if out != "a name in / with this, typed\n" || code != 7 {
		t.Errorf("%q, exit %d", out, code)
	}
	for name, args := range map[string][]string{"no directory": {"/nowhere", "/bin/sh", "-c", "exit 7"}, "no program": {"/", "/nowhere/sh"}} {
		if out, code := become(args...); code != 3 || !strings.Contains(out, "cannot run") || !strings.Contains(out, "no such file") {
			t.Errorf("%s: %q, exit %d", name, out, code)
		}
	}
}
