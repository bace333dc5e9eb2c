package platform

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// startSpec is a role to be started by Start.
func startSpec(t *testing.T, role string, args ...string) Spec {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	return Spec{Argv: append([]string{exe}, args...), Env: []string{roleVariable + "=" + role}}
}

// start starts it and kills it at the end.
func start(t *testing.T, s Spec) *Child {
	t.Helper()
	c, err := Start(s)
	must(t, err)
	t.Cleanup(func() {
		_ = c.Identity().Signal(Kill)
		c.Wait()
	})
	return c
}

func TestStartGivesTheChildNothingOfOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	must(t, err)
	defer func() { must(t, out.Close()) }()
	// A descriptor that a careless parent of ours would have left open.
	leaked, err := unix.FcntlInt(out.Fd(), unix.F_DUPFD, 200)
	must(t, err)
	defer func() { must(t, unix.Close(leaked)) }()

	s := startSpec(t, "report", fmt.Sprint(leaked))
	s.Env = append(s.Env, "ONLY=this")
	s.Dir, s.Output = dir, out
	c := start(t, s)
	if exit := c.Wait(); exit != (Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	got, err := os.ReadFile(out.Name())
	must(t, err)
	want := fmt.Sprintf("leader=true stdin=/dev/null dir=%s env=%s=report,ONLY=this", dir, roleVariable)
	lines := strings.Split(string(got), "\n")
	if !strings.HasPrefix(lines[0], want) || !strings.HasSuffix(lines[0], "inherited=[]") || lines[1] != "to standard error" {
		t.Errorf("the child said:\n%s\nwant %s … inherited=[]", got, want)
	}
}

func TestStartAddsNothingToAnEmptyEnvironment(t *testing.T) {
	t.Parallel()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	defer func() { must(t, out.Close()) }()
	c := start(t, Spec{Argv: []string{"/usr/bin/env"}, Output: out})
	if exit := c.Wait(); exit != (Exit{}) {
		t.Errorf("exit %+v", exit)
	}
	if got, err := os.ReadFile(out.Name()); err != nil || len(got) != 0 {
		t.Errorf("environment %q, %v", got, err)
	}
}

func TestWaitTellsHowItEnded(t *testing.T) {
	t.Parallel()
	c := start(t, startSpec(t, "exit", "7"))
	if exit := c.Wait(); exit != (Exit{Code: 7}) {
		t.Errorf("exit %+v", exit)
	}
	if exit := c.Wait(); exit != (Exit{Code: 7}) {
		t.Errorf("asked again: %+v", exit)
	}
	c = start(t, startSpec(t, "block"))
	if c.Identity() != identityOfPID(t, c.Identity().PID) {
		t.Errorf("identity %+v", c.Identity())
	}
	must(t, c.Identity().Signal(Kill))
	if exit := c.Wait(); exit != (Exit{Code: -1, Signal: "SIGKILL"}) {
		t.Errorf("exit %+v", exit)
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		spec Spec
		err  string
	}{
		{"nothing", Spec{}, "must be absolute"},
		{"a name", Spec{Argv: []string{"sh"}}, "must be absolute"},
		{"absent", Spec{Argv: []string{dir + "/absent"}}, "no such file"},
		{"a directory", Spec{Argv: []string{dir}}, "permission denied"},
		{"no such directory", Spec{Argv: []string{"/bin/sh"}, Dir: dir + "/absent"}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Start(tt.spec)
			checkError(t, err, tt.err)
		})
	}
}

func TestRSS(t *testing.T) {
	t.Parallel()
	n, err := RSS(os.Getpid())
	if err != nil || n < 1<<20 || n > 1<<32 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := RSS(1 << 30); err != ErrNoProcess {
		t.Errorf("no process: %v", err)
	}
}
