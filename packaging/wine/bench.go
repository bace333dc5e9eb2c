// Package wine runs Windows programs on Linux, for the tests of what is built for
// Windows: in a Windows of their own, which is a directory, on a screen that nobody
// sees. Nothing outside the directory is read or written but the programs themselves.
//
// Wine is no Windows. What of it the tests go by, and what isn't there (Debian 12's
// Wine 8): services are installed, started, told to stop and removed, but run as the
// one user there is, whose password is whatever is given, without their environment,
// and aren't started again when they fail; the Task Scheduler keeps a definition, and
// runs none; nothing announces a shutdown or a sleep, so that the tests send what
// Windows would; a pipe that is there is made once more, so that the tests build programs
// which don't.
package wine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Bench is a Windows to run programs on.
type Bench struct {
	dir    string
	screen *exec.Cmd
	env    []string
}

// Packages are Debian's names of the packages that Start needs.
var Packages = map[string]string{"wine": "wine", "wineserver": "wine", "Xvfb": "xvfb"}

// programs are where Debian keeps what isn't on the PATH.
const programs = "/usr/lib/wine"

// find finds a program of Wine's, or the screen's.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, candidate := range []string{name, name + "64"} {
		if path, err := exec.LookPath(filepath.Join(programs, candidate)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is missing (package %s)", name, Packages[name])
}

// Missing says what Start needs and this system hasn't; "" is nothing.
func Missing() string {
	var missing []string
	for name := range Packages {
		if _, err := find(name); err != nil {
			missing = append(missing, err.Error())
		}
	}
	return strings.Join(missing, ", ")
}

// Start makes a Windows in dir, an empty directory, and starts it. It takes some seconds.
func Start(ctx context.Context, dir string) (started *Bench, err error) {
	b := &Bench{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	display, err := b.startScreen()
	if err != nil {
		return nil, fmt.Errorf("cannot start a screen: %w", err)
	}
	b.env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "DISPLAY=:" + display,
		"HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "WINEPREFIX=" + b.prefix(), "WINEARCH=win64",
		"WINEDEBUG=-all",
		// Neither .NET nor a browser, which it would ask for, and nothing in a desktop's menu.
		"WINEDLLOVERRIDES=mscoree,mshtml=;winemenubuilder.exe=d",
	}
	if out, err := Output(b.Command(ctx, "wineboot", "--init")); err != nil {
		return nil, fmt.Errorf("cannot make a Windows: %w: %s", err, out)
	}
	// Booted once more, so that the services that were made then are started. A Windows
	// goes on when nobody is logged on; this one would end a moment after each program.
	_ = b.wineserver("--kill") // it fails when none runs any more
	for _, what := range []string{"--wait", "--persistent"} {
		if err := b.wineserver(what); err != nil {
			return nil, fmt.Errorf("cannot start a Windows: wineserver %s: %w", what, err)
		}
	}
	if out, err := Output(b.Command(ctx, "wineboot")); err != nil {
		return nil, fmt.Errorf("cannot boot a Windows: %w: %s", err, out)
	}
	if err := b.provideRandom(); err != nil {
		return nil, err
	}
	return b, nil
}

// startScreen starts an X server, which chooses its number itself.
func (b *Bench) startScreen() (display string, err error) {
	program, err := find("Xvfb")
	if err != nil {
		return "", err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Close() }()
	b.screen = exec.Command(program, "-displayfd", "3", "-screen", "0", "1024x768x24", "-nolisten", "tcp")
	b.screen.ExtraFiles = []*os.File{w}
	err = b.screen.Start()
	_ = w.Close() // ours; it ends the reading when the screen ends
	if err != nil {
		b.screen = nil
		return "", err
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	return strings.TrimSpace(line), err
}

// provideRandom makes the library that programs of Go 1.22 and later take random
// numbers from, where Wine hasn't got it.
func (b *Bench) provideRandom() error {
	const name = "bcryptprimitives.dll"
	path := b.Path(`C:\windows\system32\` + name)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// RtlGenRandom is exported under that name.
	return os.WriteFile(path, forwarder(name, map[string]string{"ProcessPrng": "ADVAPI32.SystemFunction036"}), 0o644)
}

func (b *Bench) prefix() string { return filepath.Join(b.dir, "windows") }

// Path is where a path of this Windows is here: on its drive C, or anywhere by Z.
func (b *Bench) Path(windows string) string {
	drive, rest, _ := strings.Cut(strings.ReplaceAll(windows, `\`, "/"), ":")
	if strings.EqualFold(drive, "z") {
		return rest
	}
	return filepath.Join(b.prefix(), "drive_"+strings.ToLower(drive), rest)
}

// Command is a program that runs on this Windows: a path of here or there, or one of its own by name.
func (b *Bench) Command(ctx context.Context, args ...string) *exec.Cmd {
	program, err := find("wine")
	cmd := exec.CommandContext(ctx, program, args...)
	if err != nil {
		cmd.Err = err
	}
	cmd.Dir, cmd.Env = b.dir, b.env
	// What it has started holds its output for as long as it lives.
	cmd.WaitDelay = time.Second
	return cmd
}

// Output runs a program of Command and gives what it wrote, on whichever output.
func Output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended well, and what it has started lives on
	}
	return out, err
}

func (b *Bench) wineserver(what string) error {
	program, err := find("wineserver")
	if err != nil {
		return err
	}
	cmd := exec.Command(program, what)
	cmd.Env = b.env
	return cmd.Run()
}

// Close ends everything that runs on this Windows, then its screen.
func (b *Bench) Close() error {
	var err error
	if b.env != nil {
		_ = b.wineserver("--kill") // it fails when none runs, which is as wanted
		err = b.wineserver("--wait")
	}
	if b.screen != nil {
		err = errors.Join(err, b.screen.Process.Kill())
		_ = b.screen.Wait() // it was killed
	}
	return err
}
