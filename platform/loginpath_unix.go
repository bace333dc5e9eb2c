//go:build unix

package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The budget of LoginPath. The first form gets a part of it only, so that a
// start-up file for interactive shells that hangs leaves time for the next form.
const (
	loginBudget      = 5 * time.Second
	loginFirstBudget = 3 * time.Second
	loginOutputMax   = 1 << 20 // bytes; more noise than that is no answer
)

// The PATH stands between two marks, for start-up files print what they like. The
// script doesn't hold the marks as they are, so that its echo is no answer. Fish,
// too, joins the quoted list by colons.
const (
	loginOpen   = "<intermission:path>"
	loginClose  = "<intermission:end>"
	loginScript = `printf '<%s:path>%s<%s:end>' intermission "$PATH" intermission`
)

// loginForms are tried in order. Interactive comes first: many set PATH in
// .bashrc or .zshrc only. Not every shell takes every option.
var loginForms = [][]string{{"-l", "-i", "-c"}, {"-l", "-c"}, {"-c"}}

// LoginPath asks the user's login shell for PATH: a service or a desktop launcher
// is started with a small one. It takes at most 5 s, whatever the start-up files
// do; nothing that was started for it stays behind in its process group.
func LoginPath(ctx context.Context) (string, error) {
	return loginPath(ctx, loginShell(), loginBudget, loginFirstBudget)
}

func loginPath(ctx context.Context, shell string, budget, first time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	var errs []error
	for i, form := range loginForms {
		attempt, done := ctx, context.CancelFunc(func() {})
		if i == 0 {
			attempt, done = context.WithTimeout(ctx, first)
		}
		path, err := askShell(attempt, shell, form)
		done()
		if err == nil {
			return path, nil
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", shell, strings.Join(form, " "), err))
		if ctx.Err() != nil {
			break
		}
	}
	return "", fmt.Errorf("cannot ask the login shell for PATH: %w", errors.Join(errs...))
}

// askShell runs the shell once. It ends with the answer, with the shell's output, or with ctx.
func askShell(ctx context.Context, shell string, form []string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(shell, append(slices.Clone(form), loginScript)...)
	cmd.Stdout = w
	// A session of its own: an interactive shell would otherwise take the terminal, or be stopped by it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	path, err := readMarked(r)
	stop()
	// It is not reaped yet, so that the group's number is still its own.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	_ = cmd.Wait()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", errors.New("no answer in time")
	}
	return path, err
}

// readMarked reads until the answer is complete.
func readMarked(r *os.File) (string, error) {
	var out []byte
	buf := make([]byte, 8<<10)
	for {
		n, err := r.Read(buf)
		out = append(out, buf[:n]...)
		if _, rest, ok := bytes.Cut(out, []byte(loginOpen)); ok {
			if path, _, ok := bytes.Cut(rest, []byte(loginClose)); ok {
				if len(path) == 0 {
					return "", errors.New("its PATH is empty")
				}
				return string(path), nil
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return "", err
		case err != nil:
			return "", errors.New("it ended without an answer")
		case len(out) > loginOutputMax:
			return "", errors.New("it prints without end")
		}
	}
}

// loginShell is SHELL, else what the system has recorded for the user, else sh.
func loginShell() string {
	if s := os.Getenv("SHELL"); filepath.IsAbs(s) {
		return s
	}
	if s := recordedShell(os.Geteuid()); s != "" {
		return s
	}
	return "/bin/sh"
}
