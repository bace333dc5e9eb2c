package platform

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/atotto/clipboard"
)

// OpenTerminal opens a terminal window that runs argv (argv[0] is an absolute
// path) in dir ("" is ours). When the program fails the window stays until Enter is
// pressed; on Windows without Windows Terminal it closes with its program. The
// arguments reach the program as they are; no shell reads them.
//
// It waits up to 1 s for a terminal that fails at once, which is an error, and for
// no longer: what comes of it later isn't known.
func OpenTerminal(argv []string, dir string) error {
	if len(argv) == 0 || !filepath.IsAbs(argv[0]) {
		return fmt.Errorf("cannot open a terminal for %q: the program's path must be absolute", argv)
	}
	for _, a := range argv {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("cannot open a terminal for %q: an argument has a NUL", argv)
		}
	}
	if err := openTerminal(argv, dir); err != nil {
		return fmt.Errorf("cannot open a terminal: %w", err)
	}
	return nil
}

// ThenShell is a command line for OpenTerminal that runs argv, and then leaves its
// user in a shell, so that what was printed can be read.
func ThenShell(argv []string) []string { return thenShell(argv) }

// OpenFile opens a file (an absolute path) in the program that the person has
// for its kind. It returns when that was asked for; what comes of it isn't known.
func OpenFile(path string) error {
	if !filepath.IsAbs(path) { // it could be taken for an option or an address
		return fmt.Errorf("cannot open %q: the path must be absolute", path)
	}
	if err := openFile(path); err != nil {
		return fmt.Errorf("cannot open %s: %w", path, err)
	}
	return nil
}

// MenuText escapes what a menu would take as the mark of a mnemonic.
func MenuText(s string) string { return menuText(s) }

// clipboardTimeout bounds CopyText.
const clipboardTimeout = 3 * time.Second

var clipboardCalls = newAside()

// CopyText puts a text on the clipboard, within 3 s. Which program does that on
// Linux was decided when this process started, by what was installed then.
func CopyText(text string) error {
	return copyText(text, clipboardCalls, clipboard.Unsupported, clipboard.WriteAll)
}

func copyText(text string, calls aside, unsupported bool, write func(string) error) error {
	if unsupported {
		return errors.New("cannot copy to the clipboard: no program for it; " + clipboardHint)
	}
	ctx, cancel := context.WithTimeout(context.Background(), clipboardTimeout)
	defer cancel()
	if err := calls.do(ctx, func() error { return write(text) }); err != nil {
		return fmt.Errorf("cannot copy to the clipboard: %w; %s", err, clipboardHint)
	}
	return nil
}

// terminalFails is how long a terminal may take to fail so that it is noticed.
const terminalFails = time.Second

// startTerminal starts a command that goes on without us, unless it exits with a
// failure in that time. One that hands over to its server exits with 0.
func startTerminal(cmd *exec.Cmd, fails time.Duration) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.NewTimer(fails)
	defer late.Stop()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("%s failed at once (%w); run it by hand to see why", cmd.Path, err)
		}
	case <-late.C:
	}
	return nil
}

// startAside starts a command that goes on without us, and reaps it when it ends.
func startAside(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
