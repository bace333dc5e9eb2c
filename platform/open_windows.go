package platform

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

const clipboardHint = "try again: another program may hold it"

// openTerminal prefers Windows Terminal, which holds the window of a command that
// failed. A console of the system's own closes with its program.
func openTerminal(argv []string, dir string) error {
	if err := checkBatch(argv); err != nil {
		return err
	}
	if wt, err := exec.LookPath("wt.exe"); err == nil {
		command := terminalTabCommand(wt, argv, dir)
		cmd := exec.Command(command[0], command[1:]...)
		detach(cmd)
		if startTerminal(cmd, terminalFails) == nil {
			return nil
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_CONSOLE | windows.CREATE_NEW_PROCESS_GROUP}
	return startTerminal(cmd, terminalFails)
}

func thenShell(argv []string) []string {
	return append([]string{filepath.Join(os.Getenv("SystemRoot"), "System32", "cmd.exe"), "/k"}, argv...)
}

// openFile leaves the choice of the program to the shell (ShellExecute), which may
// load what others have hooked into it: not into our process.
func openFile(path string) error {
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(system, "rundll32.exe"), "url.dll,FileProtocolHandler", path)
	detach(cmd)
	return startAside(cmd)
}

// menuText: Windows marks a mnemonic by "&".
func menuText(s string) string { return strings.ReplaceAll(s, "&", "&&") }
