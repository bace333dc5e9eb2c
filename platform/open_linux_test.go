package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// look finds these programs.
func look(programs ...string) func(string) (string, error) {
	return func(name string) (string, error) {
		if slices.Contains(programs, name) {
			return "/bin/" + filepath.Base(name), nil
		}
		return "", exec.ErrNotFound
	}
}

func TestTerminalCommand(t *testing.T) {
	t.Parallel()
	run := "/bin/sh -c KEEP sh /project /opt/i open"
	for _, tt := range []struct {
		name, chosen string
		there        []string
		want, err    string
	}{
		{"the proposed standard", "kitty", []string{"xdg-terminal-exec", "kitty", "x-terminal-emulator"}, "/bin/xdg-terminal-exec " + run, ""},
		{"chosen", "kitty", []string{"kitty", "x-terminal-emulator"}, "/bin/kitty " + run, ""},
		{"chosen by its path", "/bin/konsole", []string{"/bin/konsole"}, "/bin/konsole -e " + run, ""},
		{"chosen with an option", "wezterm --config x", []string{"wezterm"}, "/bin/wezterm --config x start -- " + run, ""},
		{"chosen, one that we don't know", "myterm", []string{"myterm"}, "/bin/myterm -e " + run, ""},
		{"chosen, but not there", "myterm", []string{"xterm"}, "/bin/xterm -e " + run, ""},
		{"Debian's", "", []string{"x-terminal-emulator", "gnome-terminal"}, "/bin/x-terminal-emulator -e " + run, ""},
		{"the desktop's before xterm", "", []string{"xterm", "gnome-terminal"}, "/bin/gnome-terminal -- " + run, ""},
		{"none", "", nil, "", "x-terminal-emulator, gnome-terminal"},
		{"none, and an act", "", nil, "", "install one or set TERMINAL"},
	} {
		got, err := terminalCommand([]string{"/opt/i", "open"}, "/project", func(string) string { return tt.chosen }, look(tt.there...))
		checkError(t, err, tt.err)
		if joined := strings.ReplaceAll(strings.Join(got, " "), keepOpen, "KEEP"); joined != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, joined, tt.want)
		}
	}
}

// desktopPrograms makes PATH a directory of the fakes alone, each of which tells the
// fifo that it gives back what it was started with.
func desktopPrograms(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		must(t, writeProgram(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n")))
	}
	t.Setenv("PATH", dir)
	t.Setenv("TERMINAL", "")
}

var strangeArguments = []string{"a b", `"q"`, "'s'", "$HOME `id` $(id)", "", "two\nlines", `\`, "-n", "*", "ü"}

func TestOpenTerminal(t *testing.T) {
	noLeak(t)
	dir := filepath.Join(t.TempDir(), "a 'project' $x")
	must(t, os.Mkdir(dir, 0o700))
	report := filepath.Join(t.TempDir(), "report")
	desktopPrograms(t, map[string]string{"xterm": `shift; exec "$@"`})
	program := filepath.Join(t.TempDir(), "the program")
	must(t, writeProgram(program, []byte(`#!/bin/sh
{ pwd; for a; do printf '<%s>' "$a"; done; } >"$REPORT.new"
/bin/mv "$REPORT.new" "$REPORT"`)))
	t.Setenv("REPORT", report)
	must(t, OpenTerminal(append([]string{program}, strangeArguments...), dir))
	eventually(t, "it has run", func() bool { _, err := os.Stat(report); return err == nil })
	want := dir + "\n"
	for _, a := range strangeArguments {
		want += "<" + a + ">"
	}
	if got := content(report); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestOpenTerminalStartsASession(t *testing.T) {
	noLeak(t)
	report := filepath.Join(t.TempDir(), "report")
	t.Setenv("REPORT", report)
	// Field 6 of the status is the session, and $$ its leader.
	desktopPrograms(t, map[string]string{"xterm": `read -r stat </proc/$$/stat
set -- ${stat##*)}
echo "$$ $4" >"$REPORT.new"
/bin/mv "$REPORT.new" "$REPORT"`})
	must(t, OpenTerminal([]string{"/bin/true"}, ""))
	eventually(t, "it has run", func() bool { return content(report) != "" })
	var pid, session int
	_, err := fmt.Sscan(content(report), &pid, &session)
	must(t, err)
	if pid != session {
		t.Errorf("process %d is in the session %d", pid, session)
	}
}

// TestStartTerminal: what fails at once is an error; what goes on, or hands over to its server, isn't.
func TestStartTerminal(t *testing.T) {
	noLeak(t)
	shell := func(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }
	checkError(t, startTerminal(shell("exit 3"), patience), "/bin/sh failed at once (exit status 3); run it by hand")
	checkError(t, startTerminal(exec.Command("/absent"), patience), "no such file")
	must(t, startTerminal(shell("exit 0"), patience))
	goesOn := shell("read -r line; exit 3")
	in, err := goesOn.StdinPipe()
	must(t, err)
	must(t, startTerminal(goesOn, time.Millisecond))
	must(t, in.Close())
}

func TestOpenTerminalThatFails(t *testing.T) {
	noLeak(t)
	desktopPrograms(t, map[string]string{"xterm": "exit 1"})
	checkError(t, OpenTerminal([]string{"/bin/true"}, ""), "cannot open a terminal: ")
}

func TestThenShell(t *testing.T) {
	t.Parallel()
	argv := ThenShell([]string{"/usr/bin/printf", "<%s>", "a b", "$x"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"SHELL=/bin/pwd"}
	cmd.Dir = "/"
	if out, err := cmd.Output(); err != nil || string(out) != "<a b><$x>/\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestOpenTerminalRefuses(t *testing.T) {
	desktopPrograms(t, nil)
	checkError(t, OpenTerminal(nil, ""), "must be absolute")
	checkError(t, OpenTerminal([]string{"i"}, ""), "must be absolute")
	checkError(t, OpenTerminal([]string{"/i", "a\x00b"}, ""), "NUL")
	checkError(t, OpenTerminal([]string{"/i"}, ""), "cannot open a terminal: none of xdg-terminal-exec")
}

// TestKeepOpen: what failed is held until Enter, what went well isn't.
func TestKeepOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct {
		name, dir, command, want string
		held                     bool
	}{
		{"well", dir, "echo done", "done\n", false},
		{"failed", dir, "echo oh; exit 7", "oh\n\nIt ended with status 7. Press Enter to close this window.", true},
		{"the directory is gone", filepath.Join(dir, "absent"), "echo done", "\nIt ended with status 2. Press Enter to close this window.", true},
	} {
		for kind, cmd := range map[string]*exec.Cmd{
			"argument": exec.Command("/bin/sh", "-c", keepOpen, "sh", tt.dir, "/bin/sh", "-c", tt.command),
			"file":     exec.Command("/bin/sh", commandScript(t, []string{"/bin/sh", "-c", tt.command}, tt.dir)),
		} {
			stdin, err := cmd.StdinPipe()
			must(t, err)
			out := &logBook{}
			cmd.Stdout = out
			must(t, cmd.Start())
			if tt.held {
				eventually(t, "it asks", func() bool { return out.lines("Press Enter") == 1 })
				_, err := stdin.Write([]byte("\n"))
				must(t, err)
			}
			_ = cmd.Wait() // with input open, it would never end if it asked
			if got := out.b.String(); got != tt.want {
				t.Errorf("%s, %s: got %q", tt.name, kind, got)
			}
		}
	}
}

func commandScript(t *testing.T, argv []string, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.command")
	must(t, writeProgram(path, []byte(commandFile(argv, dir))))
	return path
}

func TestCommandFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a 'project' $x")
	must(t, os.Mkdir(dir, 0o700))
	argv := append([]string{"/usr/bin/printf", "<%s>"}, strangeArguments...)
	path := commandScript(t, argv, dir)
	out, err := exec.Command(path).Output()
	must(t, err)
	if want := "<" + strings.Join(strangeArguments, "><") + ">"; string(out) != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is still there")
	}
	out, err = exec.Command(commandScript(t, []string{"/bin/pwd"}, dir)).Output()
	must(t, err)
	if string(out) != dir+"\n" {
		t.Errorf("it ran in %q", out)
	}
}

func TestOpenFile(t *testing.T) {
	noLeak(t)
	report := filepath.Join(t.TempDir(), "report")
	t.Setenv("REPORT", report)
	desktopPrograms(t, map[string]string{"xdg-open": `echo "$# $1" >"$REPORT.new"; /bin/mv "$REPORT.new" "$REPORT"; exit 3`})
	must(t, OpenFile("/a log/of $x"))
	eventually(t, "it has run", func() bool { return content(report) != "" })
	if got := content(report); got != "1 /a log/of $x\n" {
		t.Errorf("%q", got)
	}
	checkError(t, OpenFile("--help"), "must be absolute")
	desktopPrograms(t, nil)
	checkError(t, OpenFile("/x"), "install xdg-utils")
}

func TestMenuText(t *testing.T) {
	t.Parallel()
	if got := MenuText("rm_x && __y"); got != "rm__x && ____y" {
		t.Errorf("%q", got)
	}
}

func TestCopyText(t *testing.T) {
	t.Parallel()
	calls := newAside()
	var got string
	must(t, copyText("ses_1", calls, false, func(s string) error { got = s; return nil }))
	if got != "ses_1" {
		t.Errorf("%q", got)
	}
	checkError(t, copyText("x", calls, true, nil), "install wl-clipboard (Wayland) or xclip")
	checkError(t, copyText("x", calls, false, func(string) error { return errors.New("exit status 1") }), "exit status 1; install")
	synctest.Test(t, func(t *testing.T) {
		calls, start, hold := newAside(), time.Now(), make(chan struct{})
		err := copyText("x", calls, false, func(string) error { <-hold; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != clipboardTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		close(hold)
	})
}
