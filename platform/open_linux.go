package platform

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const clipboardHint = "install wl-clipboard (Wayland) or xclip, and start the tray again"

// terminals are the terminal programs that take a command as a vector, with what
// stands before it, those first that belong to a desktop. (Terminals that take a
// command as one string are not here: nothing of ours goes through a shell.)
var terminals = []struct {
	program string
	before  []string
}{
	{"gnome-terminal", []string{"--"}},
	{"ptyxis", []string{"--"}},
	{"kgx", []string{"--"}},
	{"konsole", []string{"-e"}},
	{"xfce4-terminal", []string{"-x"}},
	{"mate-terminal", []string{"-x"}},
	{"terminator", []string{"-x"}},
	{"kitty", nil},
	{"alacritty", []string{"-e"}},
	{"foot", nil},
	{"ghostty", []string{"-e"}},
	{"wezterm", []string{"start", "--"}},
	{"urxvt", []string{"-e"}},
	{"st", []string{"-e"}},
	{"xterm", []string{"-e"}},
}

// keepOpen runs its arguments after the first, in the directory that is the first,
// and holds the window when that fails. It is the same for every command, so the
// arguments aren't read by the shell.
const keepOpen = `cd -- "$1" && shift && "$@"
status=$?
if [ "$status" -ne 0 ]; then
	printf '\nIt ended with status %s. Press Enter to close this window.' "$status"
	read -r answer
fi`

func openTerminal(argv []string, dir string) error {
	command, err := terminalCommand(argv, dir, os.Getenv, exec.LookPath)
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		cmd.Dir = dir // some terminals hand it to their server
	}
	detach(cmd)
	return startTerminal(cmd, terminalFails)
}

// terminalCommand finds a terminal: what the person has chosen, by the proposed
// standard, the variable or Debian's alternatives, else the first of the table that is installed.
func terminalCommand(argv []string, dir string, getenv func(string) string, look func(string) (string, error)) ([]string, error) {
	if dir == "" {
		dir = "."
	}
	run := append([]string{"/bin/sh", "-c", keepOpen, "sh", dir}, argv...)
	if p, err := look("xdg-terminal-exec"); err == nil {
		return append([]string{p}, run...), nil
	}
	if chosen := strings.Fields(getenv("TERMINAL")); len(chosen) > 0 {
		if p, err := look(chosen[0]); err == nil {
			return slices.Concat([]string{p}, chosen[1:], beforeCommand(p), run), nil
		}
	}
	if p, err := look("x-terminal-emulator"); err == nil {
		return slices.Concat([]string{p, "-e"}, run), nil // Debian policy 11.8.3
	}
	for _, t := range terminals {
		if p, err := look(t.program); err == nil {
			return slices.Concat([]string{p}, t.before, run), nil
		}
	}
	names := make([]string, len(terminals))
	for i, t := range terminals {
		names[i] = t.program
	}
	return nil, fmt.Errorf("none of xdg-terminal-exec, $TERMINAL, x-terminal-emulator, %s is there; install one or set TERMINAL",
		strings.Join(names, ", "))
}

// beforeCommand is what stands before a terminal's command; an unknown one is taken to be like xterm.
func beforeCommand(path string) []string {
	for _, t := range terminals {
		if t.program == filepath.Base(path) {
			return t.before
		}
	}
	return []string{"-e"}
}

func openFile(path string) error {
	opener, err := exec.LookPath("xdg-open")
	if err != nil {
		return errors.New("xdg-open isn't there; install xdg-utils")
	}
	cmd := exec.Command(opener, path)
	detach(cmd)
	return startAside(cmd)
}

// menuText: D-Bus menus mark a mnemonic by "_".
func menuText(s string) string { return strings.ReplaceAll(s, "_", "__") }
