//go:build unix

package platform

import (
	"bytes"
	"context"
	"crypto/rand"
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

// The budget of LoginEnvironment. The first two forms get a part of it only, so that a
// start-up file for interactive shells that hangs leaves time for the next ones.
const (
	loginBudget      = 5 * time.Second
	loginFirstBudget = 3 * time.Second
	loginOutputMax   = 4 << 20 // bytes; more noise than that is no answer
)

// LoginAsking is set, to 1, for the shell that is asked, so that a start-up file
// which does more than exporting can leave that out.
const LoginAsking = "INTERMISSION_ASKING"

// forQuestion is added to the environment of the shell that is asked. No prompt is to be drawn.
var forQuestion = []string{"TERM=dumb", LoginAsking + "=1"}

// loginForm is one way to have a shell run a command as at a login.
type loginForm struct {
	options []string
	zero    string // put before the shell's name as its own argument 0
	input   bool   // the command is given on the standard input too
	plain   bool   // not as at a login
}

func (f loginForm) String() string { return strings.Join(f.options, " ") }

// loginForms are tried in order. Interactive comes first: many set PATH in
// .bashrc or .zshrc only. Not every shell takes every option: csh knows a login
// by its name alone. A login file that executes another shell leaves the command to
// none; but that one reads its input. Forms with input are for a shell that has ended.
var loginForms = []loginForm{
	{options: []string{"-l", "-i", "-c"}},
	{options: []string{"-l", "-i", "-c"}, input: true},
	{options: []string{"-l", "-c"}},
	{options: []string{"-c"}, zero: "-"},
	{options: []string{"-l", "-c"}, input: true},
	{options: []string{"-c"}, plain: true},
}

// LoginEnvironment asks the user's login shell for all that it exports, as
// os.Environ has it: a service or a desktop launcher is started with little. given
// is what the shell is started with itself; nil is our own environment. It takes at
// most 5 s, whatever the start-up files do; nothing that was started for it stays
// behind in its process group. Exported functions are left out. With ErrLoginFiles,
// and only then, there is an environment beside the error: that without login files.
func LoginEnvironment(ctx context.Context, given []string) ([]string, error) {
	if given == nil {
		given = os.Environ()
	}
	env, err := askLogin(ctx, loginShell(given), given, loginBudget, loginFirstBudget)
	if err != nil {
		return env, fmt.Errorf("cannot ask the login shell for its environment: %w", err)
	}
	return env, nil
}

// LoginPath is the PATH of LoginEnvironment, with or without login files.
func LoginPath(ctx context.Context) (string, error) {
	given := os.Environ()
	return loginPath(ctx, loginShell(given), given, loginBudget, loginFirstBudget)
}

func loginPath(ctx context.Context, shell string, given []string, budget, first time.Duration) (string, error) {
	env, err := askLogin(ctx, shell, given, budget, first)
	if err != nil && !errors.Is(err, ErrLoginFiles) {
		return "", fmt.Errorf("cannot ask the login shell for PATH: %w", err)
	}
	return lookUp(env, "PATH"), nil
}

func askLogin(ctx context.Context, shell string, given []string, budget, first time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	var errs []error
	for i, form := range loginForms {
		if form.input && !errors.Is(errs[len(errs)-1], errEnded) {
			continue // what hangs would take the time of the others
		}
		attempt, done := ctx, context.CancelFunc(func() {})
		if i <= 1 {
			attempt, done = context.WithTimeout(ctx, first)
		}
		env, program, err := askShell(attempt, shell, form, given)
		done()
		switch {
		case err == nil && form.plain:
			return env, withoutFiles(shell, given, errs)
		case err == nil && form.input:
			return askNext(ctx, program, shell, env), nil
		case err == nil:
			return env, nil
		}
		errs = append(errs, fmt.Errorf("%s %s: %w", shell, form, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// askNext asks the program that a login file has put in the shell's place: as it is
// started there it isn't interactive, which it is at a login. env is what it said so.
func askNext(ctx context.Context, program, shell string, env []string) []string {
	if behind, err := filepath.EvalSymlinks(shell); program == "" || err == nil && program == behind {
		return env
	}
	for _, form := range loginForms {
		if form.input || form.plain {
			continue
		}
		if more, _, err := askShell(ctx, program, form, env); err == nil {
			return more
		}
	}
	return env
}

// loginFiles are those that a shell reads at a login, in its own order; the first
// ones only, since they read others. All other shells read .profile, as sh does.
var loginFiles = map[string][]string{
	"bash": {".bash_profile", ".bash_login", ".profile"},
	"zsh":  {".zshenv", ".zprofile", ".zshrc", ".zlogin"},
	"fish": {".config/fish/config.fish"},
	"csh":  {".cshrc", ".login"},
	"tcsh": {".tcshrc", ".cshrc", ".login"},
}

// withoutFiles is the error of a shell that has answered without login files only; errs
// are of the other forms.
func withoutFiles(shell string, given []string, errs []error) error {
	if slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, errEnded) }) {
		return fmt.Errorf("%s: %w: %w", shell, ErrLoginFiles, errors.Join(errs...))
	}
	names, ok := loginFiles[filepath.Base(shell)]
	if !ok {
		names = []string{".profile"}
	}
	var files []string
	for _, name := range names {
		path := filepath.Join(lookUp(given, "HOME"), name)
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
		}
		if len(files) > 0 && filepath.Base(shell) == "bash" {
			break // it reads the first one only
		}
	}
	if len(files) == 0 {
		files = []string{"/etc/profile"}
	}
	return fmt.Errorf("%s: %w: an exit, or the exec of another program, ends it (look in %s)", shell, ErrLoginFiles, strings.Join(files, ", "))
}

// loginQuestion is what the shell runs: one command, whose quoting is the same in
// all shells, in which a plain shell prints the environment that it was given. Start-up
// files print what they like, so it stands between two marks, which the command
// doesn't hold as they are, so that its echo is no answer. A job that a start-up file
// has left may print into it: it is printed until two copies are the same, after a
// while with pauses.
func loginQuestion(nonce string) string {
	return fmt.Sprintf(`/bin/sh -c 'for copy in 1 2 3 4 5 6 7 8 9 10 11 12; do printf %%s:%%s:env: intermission %[1]s; `+
		`/usr/bin/env -0 2>/dev/null || env -0 2>/dev/null || env; printf %%s:%%s:end: intermission %[1]s; [ $copy -lt 3 ] || sleep 0.1 2>/dev/null; done'`, nonce)
}

// askShell runs the shell once. It ends with the answer, with the shell's output, or with
// ctx. program is what has answered to a form with input, if that can be told.
func askShell(ctx context.Context, shell string, form loginForm, given []string) (env []string, program string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Close() }()
	nonce := rand.Text()
	question := loginQuestion(nonce)
	cmd := exec.Command(shell, append(slices.Clone(form.options), question)...)
	cmd.Args[0] = form.zero + cmd.Args[0]
	cmd.Stdout = w
	if form.input {
		in, err := inputOf(question + "\n")
		if err != nil {
			_ = w.Close()
			return nil, "", err
		}
		defer func() { _ = in.Close() }()
		cmd.Stdin = in
	}
	if info, err := os.Stat(lookUp(given, "HOME")); err == nil && info.IsDir() {
		cmd.Dir = lookUp(given, "HOME") // where a login begins: some set variables by the directory
	}
	cmd.Env = append(withoutManager(given), forQuestion...)
	// A session of its own: an interactive shell would otherwise take the terminal, or be stopped by it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return nil, "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	env, err = readEnvironment(r, nonce)
	stop()
	if form.input {
		program = runningProgram(cmd.Process.Pid) // it still prints copies of its answer
	}
	// It is not reaped yet, so that the group's number is still its own.
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	_ = cmd.Wait()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, "", errors.New("no answer in time")
	}
	return env, program, err
}

// inputOf is a pipe that holds a short text, and then ends.
func inputOf(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.WriteString(text)
	if err = errors.Join(err, w.Close()); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// errEnded is a shell's end before it has run the question.
var errEnded = errors.New("it ended without an answer")

// readEnvironment reads until two copies of the answer are the same.
func readEnvironment(r *os.File, nonce string) ([]string, error) {
	open, end := []byte("intermission:"+nonce+":env:"), []byte("intermission:"+nonce+":end:")
	var rest []byte
	var copies [][]string
	buf := make([]byte, 64<<10)
	for read := 0; ; {
		n, err := r.Read(buf)
		rest = append(rest, buf[:n]...)
		for read += n; ; {
			answer, after, ok := cutBetween(rest, open, end)
			if !ok {
				break
			}
			rest = after
			env := parseEnvironment(answer)
			for _, before := range copies {
				if slices.Equal(before, env) {
					return checkLogin(env)
				}
			}
			copies = append(copies, env)
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, err
		case err != nil && len(copies) > 0:
			return nil, errors.New("something prints into its answer")
		case err != nil:
			return nil, errEnded
		case read > loginOutputMax:
			return nil, errors.New("it prints without end")
		}
	}
}

func cutBetween(b, open, end []byte) (inner, after []byte, ok bool) {
	_, b, ok = bytes.Cut(b, open)
	if !ok {
		return nil, nil, false
	}
	return bytes.Cut(b, end)
}

func withoutManager(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return IsManagerVariable(name)
	})
}

// checkLogin refuses what no login shell that works exports, and leaves out what
// stands there for the question alone.
func checkLogin(env []string) ([]string, error) {
	env = slices.DeleteFunc(env, func(entry string) bool { return slices.Contains(forQuestion, entry) })
	if lookUp(env, "PATH") == "" {
		return nil, errors.New("its PATH is empty")
	}
	return env, nil
}

// parseEnvironment reads what env has printed: entries that end with NUL, or, where
// env knows no -0, lines: then one that begins no entry belongs to the one before.
func parseEnvironment(printed []byte) []string {
	var entries []string
	if bytes.IndexByte(printed, 0) >= 0 {
		entries = strings.Split(strings.TrimSuffix(string(printed), "\x00"), "\x00")
	} else {
		for line := range strings.Lines(string(printed)) {
			name, _, ok := strings.Cut(line, "=")
			if ok && (isVariable(name) || strings.HasPrefix(name, "BASH_FUNC_")) || len(entries) == 0 {
				entries = append(entries, "")
			}
			entries[len(entries)-1] += line
		}
		for i, entry := range entries {
			entries[i] = strings.TrimSuffix(entry, "\n")
		}
	}
	return slices.DeleteFunc(entries, func(entry string) bool {
		name, _, ok := strings.Cut(entry, "=")
		return !ok || !isVariable(name)
	})
}

// isVariable tells a variable from an exported function, whose name is like
// BASH_FUNC_x%%, and from noise.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return name != ""
}

// loginShell is SHELL, else what the system has recorded for the user, else sh.
func loginShell(given []string) string {
	if s := lookUp(given, "SHELL"); filepath.IsAbs(s) {
		return s
	}
	if s := recordedShell(os.Geteuid()); s != "" {
		return s
	}
	return "/bin/sh"
}

// lookUp gives the value of a variable; of several, the last, as os/exec has it.
func lookUp(env []string, name string) string {
	for _, entry := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// VariableKey is the same for all spellings of one variable's name.
func VariableKey(name string) string { return name }
