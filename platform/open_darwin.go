package platform

import (
	"os"
	"os/exec"
)

const clipboardHint = "try again from a session with a desktop"

// opener is macOS's own, wherever PATH leads.
const opener = "/usr/bin/open"

func openTerminal(argv []string, dir string) (err error) {
	f, err := os.CreateTemp("", app+"-*.command")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if _, err := f.WriteString(commandFile(argv, dir)); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Chmod(0o700); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return startTerminal(openCommand(f.Name()), terminalFails)
}

func openFile(path string) error { return startAside(openCommand(path)) }

func openCommand(path string) *exec.Cmd {
	cmd := exec.Command(opener, path)
	detach(cmd)
	return cmd
}

// menuText: macOS's menus have no mnemonics.
func menuText(s string) string { return s }
