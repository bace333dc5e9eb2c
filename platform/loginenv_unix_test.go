//go:build unix

package platform

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
			got, err := loginPath(t.Context(), fakeShell(t, tt.startup), os.Environ(), budget, first)
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
		_, err := loginPath(ctx, shell, os.Environ(), time.Hour, time.Hour)
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
	_, err := loginPath(ctx, fakeShell(t, "sleep 1000"), os.Environ(), patience, patience)
	checkError(t, err, "cannot ask the login shell")
}

func TestLoginPathWithoutAShell(t *testing.T) {
	t.Parallel()
	_, err := loginPath(t.Context(), filepath.Join(t.TempDir(), "absent"), os.Environ(), patience, patience)
	checkError(t, err, "no such file")
}

// A job that a start-up file left may print while the answer is printed.
func TestLoginEnvironmentIsWhatStandsTwice(t *testing.T) {
	t.Parallel()
	const good = "PATH=/bin\x00A=1\nB=2\x00BASH_FUNC_f%%=() {  :\n}\x00EMPTY=\x00EQ=a=b\x00\x00noise\x00"
	want := []string{"PATH=/bin", "A=1\nB=2", "EMPTY=", "EQ=a=b"}
	for _, tt := range []struct {
		name, printed string
		want          []string
		err           string
	}{
		{"clean", "(" + good + ")" + "(" + good + ")", want, ""},
		{"noise between", "noise(" + good + ")noise\x00PATH=/wrong(" + good + ")noise", want, ""},
		{"noise within the first", "(PATH=/bin\x00A=1no\nise\nB=2\x00EMPTY=\x00EQ=a=b\x00)(" + good + ")(" + good + ")", want, ""},
		{"noise within the second", "(" + good + ")(PATH=noise/bin\x00)(" + good + ")", want, ""},
		{"noise within all", "(PATH=/1\x00)(PATH=/2\x00)(PATH=/3\x00)", nil, "something prints into its answer"},
		{"once only", "(" + good + ")", nil, "something prints into its answer"},
		{"cut off", "(" + good, nil, "ended without an answer"},
		{"no PATH", "(A=1\x00)(A=1\x00)", nil, "PATH is empty"},
		{"lines", strings.Repeat("(PATH=/bin\nA=1\nB 2\nBASH_FUNC_f%%=() {  :\n}\nEQ=a=b\n)", 2), []string{"PATH=/bin", "A=1\nB 2", "EQ=a=b"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			must(t, err)
			defer func() { _ = r.Close() }()
			go func() {
				_, _ = w.WriteString(strings.NewReplacer("() {", "() {", "(", "intermission:NONCE:env:", ")", "intermission:NONCE:end:").Replace(tt.printed))
				_ = w.Close()
			}()
			got, err := readEnvironment(r, "NONCE")
			checkError(t, err, tt.err)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// shellFiles are the start-up files of each shell, which export, print, define a
// function and leave a job that prints on.
var shellFiles = map[string]map[string]string{
	"bash": {".bash_profile": ". ~/.bashrc\n", ".bashrc": exporting + "f() { :; }; export -f f\n" + noisy},
	"sh":   {".profile": exporting + noisy},
	"dash": {".profile": exporting + noisy},
	"ksh":  {".profile": exporting + noisy},
	"zsh":  {".zprofile": "export GREETING=overwritten\n", ".zshrc": exporting + "PROMPT='%~ '\n" + noisy},
	"fish": {".config/fish/config.fish": `set -gx PATH /from/startup $PATH
set -gx LINES_OF a\n=b\nPATH=/wrong
set -gx GREETING 'it\'s "me" <intermission>'
set -gx ASKED $INTERMISSION_ASKING
echo noise; printf noise
sh -c 'n=0; while [ $n -lt 200 ]; do echo PATH=/noise; n=$((n+1)); done' &
`},
	"tcsh": {".cshrc": `set path=(/from/startup $path)
setenv LINES_OF 'a\
=b\
PATH=/wrong'
set prompt='%~ '
echo noise; printf noise
`, ".login": `setenv GREETING 'it'"'"'s "me" <intermission>'
setenv ASKED $INTERMISSION_ASKING
`},
}

const (
	exporting = `PATH=/from/startup:$PATH
export LINES_OF='a
=b
PATH=/wrong' GREETING='it'"'"'s "me" <intermission>' ASKED="$INTERMISSION_ASKING"
`
	// noisy prints before the answer, into it and after it.
	noisy = `echo noise; printf noise
(n=0; while [ $n -lt 200 ]; do echo PATH=/noise; n=$((n+1)); done) &
trap 'echo bye PATH=/wrong' EXIT
`
)

// promised are the shells that a machine which runs all checks has.
var promised = []string{"bash", "sh", "zsh", "fish"}

func TestLoginEnvironmentOfRealShells(t *testing.T) {
	t.Parallel()
	for shell, files := range shellFiles {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(shell)
			if err != nil && slices.Contains(promised, shell) && os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			if err != nil {
				t.Skip(err)
			}
			home := t.TempDir()
			for name, text := range files {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
				must(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
			}
			given := []string{
				"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GIVEN=1", "NOTIFY_SOCKET=/run/x",
				"XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home, "XDG_CACHE_HOME=" + home,
			}
			env, err := askLogin(t.Context(), program, given, patience, patience)
			must(t, err)
			for name, want := range map[string]string{
				"LINES_OF": "a\n=b\nPATH=/wrong", "GREETING": `it's "me" <intermission>`, "GIVEN": "1", "ASKED": "1", "PWD": home, "NOTIFY_SOCKET": "", LoginAsking: "", "TERM": "",
			} {
				if got := lookUp(env, name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if path := lookUp(env, "PATH"); !strings.HasPrefix(path, "/from/startup:/") {
				t.Errorf("PATH is %q", path)
			}
			for _, entry := range env {
				if strings.Contains(entry, "noise") || strings.HasPrefix(entry, "BASH_FUNC") {
					t.Errorf("got %q", entry)
				}
			}
		})
	}
}

// TestLoginFilesThatEndTheShell has login files that end the shell, or put another one
// in its place, before what they export.
func TestLoginFilesThatEndTheShell(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, shell string
		other       string // the shell that is put in its place
		files       map[string]string
		path        string // how PATH begins
		fault       string // the file that is named
	}{
		{name: "exit", shell: "bash", files: map[string]string{".bash_profile": "exit 0\nPATH=/from/startup:$PATH\n"}, fault: "/.bash_profile)"},
		{name: "exec of what is no shell", shell: "bash", files: map[string]string{".profile": "exec true\nPATH=/from/startup:$PATH\n"}, fault: "/.profile)"},
		{name: "exit of dash", shell: "dash", files: map[string]string{".profile": "exit 0\n"}, fault: "/.profile)"},
		{name: "exit of zsh", shell: "zsh", files: map[string]string{".zprofile": "exit\n"}, fault: "/.zprofile)"},
		{name: "exec fish", shell: "bash", other: "fish", files: map[string]string{
			".bash_profile":            "export BEFORE=1\nexec fish\n",
			".config/fish/config.fish": "if status is-interactive\nset -gx PATH /from/fish $PATH\nend\n",
		}, path: "/from/fish:"},
		{name: "exec fish where interactive", shell: "bash", other: "fish", files: map[string]string{
			".bash_profile":            "export BEFORE=1\n. ~/.bashrc\n",
			".bashrc":                  "case $- in *i*) exec fish ;; esac\n",
			".config/fish/config.fish": "set -gx PATH /from/fish $PATH\n",
		}, path: "/from/fish:"},
		{name: "exec zsh", shell: "bash", other: "zsh", files: map[string]string{
			".bash_profile": "export BEFORE=1\nexec zsh -l\n", ".zshrc": "PATH=/from/zsh:$PATH\n",
		}, path: "/from/zsh:"},
		{name: "exec where it is not asked", shell: "bash", files: map[string]string{
			".bash_profile": "[ -n \"$" + LoginAsking + "\" ] || exec true\nexport BEFORE=1\nPATH=/from/startup:$PATH\n",
		}, path: "/from/startup:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var program string
			for _, shell := range []string{tt.other, tt.shell} {
				if shell == "" {
					continue
				}
				path, err := exec.LookPath(shell)
				if err != nil && slices.Contains(promised, shell) && os.Getenv("CI") != "" {
					t.Fatal(err)
				}
				if err != nil {
					t.Skip(err)
				}
				program = path
			}
			home := t.TempDir()
			for name, text := range tt.files {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
				must(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
			}
			given := []string{
				"HOME=" + home, "PATH=" + os.Getenv("PATH"),
				"XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home, "XDG_CACHE_HOME=" + home,
			}
			env, err := askLogin(t.Context(), program, given, patience, patience)
			checkError(t, err, tt.fault)
			if errors.Is(err, ErrLoginFiles) != (tt.fault != "") {
				t.Errorf("the error is %v", err)
			}
			path := lookUp(env, "PATH")
			if tt.fault != "" && path != os.Getenv("PATH") || !strings.HasPrefix(path, tt.path) {
				t.Errorf("PATH is %q", path)
			}
			if got := lookUp(env, "BEFORE"); tt.fault == "" && got != "1" {
				t.Errorf("BEFORE is %q", got)
			}
		})
	}
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
	if shell := loginShell(os.Environ()); !filepath.IsAbs(shell) {
		t.Errorf("without SHELL: %q", shell)
	}
}
