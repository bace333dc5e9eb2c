//go:build unix

package platform

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writeProgram writes a file that is to be executed. While it is open for writing
// no other test may fork: the child would hold it open, and executing it be refused
// (ETXTBSY).
func writeProgram(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o700)
}

// fakeShell is a login shell whose start-up does what the script says. It gets
// what a shell gets: options, the last of them -c, and a command.
func fakeShell(t *testing.T, startup string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shell")
	script := "#!/bin/sh\n" + `for command; do :; done
PATH=/from/startup:$PATH
` + startup + `
eval "$command"
`
	must(t, writeProgram(path, []byte(script)))
	return path
}

func TestLoginPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, startup string
		err           string
	}{
		{name: "quiet", startup: ""},
		{name: "noise before, without a newline", startup: `printf 'Welcome! PATH=/wrong \033]0;title\007'`},
		{name: "noise after", startup: `trap 'echo bye PATH=/wrong' EXIT`},
		{name: "noise on standard error", startup: `echo PATH=/wrong >&2`},
		{name: "reads its input", startup: `read answer; cat`},
		{name: "a child keeps the output open", startup: `sleep 1000 &`},
		{name: "hangs after the answer", startup: `trap 'sleep 1000' EXIT`},
		{name: "doesn't take -i", startup: `[ "$2" != -i ] || exit 2`},
		{name: "takes -c only", startup: `[ "$1" = -c ] || exit 2`},
		{name: "hangs when interactive", startup: `[ "$2" != -i ] || sleep 1000`},
		{name: "ends without an answer", startup: `exit 0`, err: "ended without an answer"},
		{name: "echoes the command", startup: `echo "$command"; exit 0`, err: "cannot ask the login shell"},
		{name: "hangs", startup: `sleep 1000`, err: "no answer in time"},
		{name: "fails", startup: `exit 1`, err: "cannot ask the login shell for PATH"},
		{name: "empty", startup: `PATH=`, err: "PATH is empty"},
		{name: "prints without end", startup: `while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done`, err: "cannot ask the login shell"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			budget, first := patience, patience
			switch tt.name {
			case "hangs when interactive":
				first = 100 * time.Millisecond
			case "hangs":
				budget = 100 * time.Millisecond
			}
			got, err := loginPath(t.Context(), fakeShell(t, tt.startup), budget, first)
			checkError(t, err, tt.err)
			if err == nil && !strings.HasPrefix(got, "/from/startup:") {
				t.Errorf("got %q", got)
			}
			if err == nil && strings.ContainsAny(got, "<>\n") {
				t.Errorf("noise in %q", got)
			}
		})
	}
}

// TestLoginPathEndsAHangingShellAndItsChildren has a shell that ignores signals, with a child.
func TestLoginPathEndsAHangingShellAndItsChildren(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	shell := fakeShell(t, `trap '' TERM INT HUP; sleep 1000 & echo $$ $! >`+pids+`.new; mv `+pids+`.new `+pids+`; wait; sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := loginPath(ctx, shell, time.Hour, time.Hour)
		ended <- err
	}()
	var written []byte
	eventually(t, "the shell hangs", func() bool {
		var err error
		written, err = os.ReadFile(pids)
		return err == nil
	})
	cancel()
	checkError(t, <-ended, "no answer in time")
	fields := strings.Fields(string(written))
	if len(fields) != 2 {
		t.Fatalf("the shell wrote %q", written)
	}
	for _, f := range fields {
		pid, err := strconv.Atoi(f)
		must(t, err)
		eventually(t, f+" has ended", func() bool { _, err := Identify(pid); return err != nil })
	}
}

func TestLoginPathEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := loginPath(ctx, fakeShell(t, "sleep 1000"), patience, patience)
	checkError(t, err, "cannot ask the login shell")
}

func TestLoginPathWithoutAShell(t *testing.T) {
	t.Parallel()
	_, err := loginPath(t.Context(), filepath.Join(t.TempDir(), "absent"), patience, patience)
	checkError(t, err, "no such file")
}

// TestLoginPathOfRealShells changes the process's environment, so it isn't parallel.
func TestLoginPathOfRealShells(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	must(t, os.WriteFile(filepath.Join(home, ".profile"), []byte("echo noise\nPATH=/from/profile:$PATH\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(home, ".bash_profile"), []byte(". ~/.profile\n. ~/.bashrc\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(home, ".bashrc"), []byte("case $- in *i*) ;; *) return;; esac\nPATH=/from/bashrc:$PATH\necho noise\n"), 0o600))
	for shell, want := range map[string]string{"/bin/bash": "/from/bashrc:/from/profile:", "/bin/sh": "/from/profile:"} {
		t.Setenv("SHELL", shell)
		got, err := LoginPath(t.Context())
		must(t, err)
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %q", shell, got)
		}
	}
	t.Setenv("SHELL", "")
	if shell := loginShell(); !filepath.IsAbs(shell) {
		t.Errorf("without SHELL: %q", shell)
	}
}
