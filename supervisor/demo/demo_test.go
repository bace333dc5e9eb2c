package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"intermission/platform"
	"intermission/supervisor/control"
)

// program is what users run, built once.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "demo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(dir, "intermission")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build := exec.Command("go", "build", "-o", program, "intermission")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "cannot build intermission: %v\n%s", err, out)
		os.RemoveAll(dir)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		os.RemoveAll(dir)
		os.Exit(status)
	}))
}

// run is one run of the program's demo, in a temporary directory of its own.
type run struct {
	cmd    *exec.Cmd
	tmp    string
	marker string // in the environment of everything that the run starts
	stderr bytes.Buffer
}

func newRun(t *testing.T, args ...string) *run {
	t.Helper()
	tmp := t.TempDir()
	r := &run{cmd: exec.Command(program, append([]string{"demo"}, args...)...), tmp: tmp, marker: "DEMO_TEST=" + tmp}
	r.cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "TMP="+tmp, "TEMP="+tmp, r.marker)
	r.cmd.Stderr = &r.stderr
	t.Cleanup(func() { platform.KillTree(context.Background(), r.processes(t), 0) })
	return r
}

// processes are those that the run has left behind; macOS and Windows don't tell.
func (r *run) processes(t *testing.T) []platform.Identity {
	t.Helper()
	all, err := platform.Tree(context.Background(), platform.Identity{}, r.marker)
	if err != nil {
		t.Error(err)
	}
	return all
}

// leavesNothing looks that neither a file nor a process of the run is left.
func (r *run) leavesNothing(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(r.tmp)
	if err != nil || len(files) > 0 {
		t.Errorf("it left %v behind (%v)", files, err)
	}
	if left := r.processes(t); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// The real story, by the real program: its counts, its exit status, and that nothing is left.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := newRun(t, "--yes")
	out, err := r.cmd.Output()
	if err != nil {
		t.Fatalf("the demo failed: %v\n%s%s", err, out, &r.stderr)
	}
	r.leavesNothing(t)
	for _, want := range []string{
		`(?m)^without intermission: executions nobody asked for +2 +promised > 0 +ok$`,
		`(?m)^with intermission: executions nobody asked for +0 +promised 0 +ok$`,
		`(?m)^with intermission: sessions that waited for consent +2 +promised 2 +ok$`,
		`(?m)^one session resumed: continuations +1 +promised 1 +ok$`,
		`(?m)^one session dismissed: continuations +0 +promised 0 +ok$`,
		`(?m)^one more reboot: further executions +0 +promised 0 +ok$`,
		`(?m)^one more reboot: sessions that wait for consent +0 +promised 0 +ok$`,
		`(?m)^   4 │ Both sessions went on by themselves\.$`,
		`The command of "Deploy the shop" has been started 2 times`,
		`(?m)^   2 │ After 1\.5s: nothing runs\.`,
		`(?m)^   3 │ "Write the release notes" was resumed`,
		`(?m)^   3 │ After 1\.5s: nothing more was executed, and 0 sessions wait\.$`,
		// What a person sees before consenting.
		`title +Write the release notes\n`, `title +Deploy the shop\n`,
		`directory +\S+[/\\]home[/\\]notes\n`, `directory +\S+[/\\]home[/\\]shop\n`,
		`you wrote +Deploy the shop`, `last tool +shell .*deploys\.txt.*outcome unknown`,
		`All as promised`,
	} {
		if !regexp.MustCompile(strings.Replace(want, "^", "^ *", 1)).Match(out) {
			t.Errorf("the output has no %s", want)
		}
	}
	if bytes.ContainsRune(out, '\x1b') || r.stderr.Len() > 0 {
		t.Errorf("colour without a terminal, or something on standard error: %s", &r.stderr)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	r := newRun(t) // its standard input is no terminal
	out, err := r.cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 || len(out) > 0 || !strings.Contains(r.stderr.String(), "--yes") {
		t.Errorf("got %v, %q, %q", err, out, &r.stderr)
	}
	r.leavesNothing(t)
	var usage *control.Error
	if err := Run(t.Context(), Options{}); !errors.As(err, &usage) || usage.Code != control.CodeUsage {
		t.Errorf("got %v", err)
	}
}

// A program that isn't ours fails the demo, and isn't waited for without end.
func TestNoProgram(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := Run(t.Context(), Options{Self: filepath.Join(t.TempDir(), "none"), Yes: true, Out: &out})
	if err == nil || !strings.Contains(err.Error(), "cannot start") {
		t.Errorf("got %v\n%s", err, &out)
	}
}
