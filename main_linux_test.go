package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"intermission/platform"
	"intermission/supervisor/control"
)

// TestOpenTakesOurPlace calls open in a terminal: what it runs has our directory,
// environment, terminal and exit status, and Ctrl-C is its own.
func TestOpenTakesOurPlace(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "open") // sockets have short paths, test names don't
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	own := map[string]string{"HOME": dir, "INTERMISSION_RUNTIME_DIR": filepath.Join(dir, "run"), "INTERMISSION_STATE_DIR": filepath.Join(dir, "state")}
	env := append(os.Environ(), "OPENCODE_SERVER_PASSWORD=another")
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	paths, err := platform.FindPaths(func(name string) string { return own[name] })
	if err != nil {
		t.Fatal(err)
	}
	l, err := platform.Listen(paths.Socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- control.NewServer(&fakeSupervisor{}, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	defer func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "intermission") // testscript.Main goes by the name
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		want   []string
	}{
		{[]string{"open", "ses_told"}, 7, []string{"ses_told in / as hush\r\n", "read hello\r\n"}},
		{[]string{"open", "ses_told", "--json"}, 7, []string{"ses_told in / as hush\r\n"}},
		{[]string{"open", "ses_stopped"}, 5, []string{"stopped by hand\r\n"}},
		{[]string{"open", "ses_x"}, 5, []string{"intermission: the server is not running; start it with: intermission start\r\n"}},
		{[]string{"open", "ses_x", "--json"}, 5, []string{`{"error":{"code":"refused",`}},
	} {
		said, status := inTerminal(t, env, "hello\n", program, c.args...)
		if status != c.status {
			t.Errorf("%q: exit status %d, want %d", c.args, status, c.status)
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%q says %q, and not %q", c.args, said, want)
			}
		}
	}
}

// inTerminal runs a program in a terminal of its own, and gives what stood there and its exit status.
func inTerminal(t *testing.T, env []string, typed, name string, args ...string) (string, int) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("cannot make a terminal: %v", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	if _, err := master.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(master) // to its end, which is an error of the terminal's
	if err != nil && !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ended is in ProcessState
	return string(text), cmd.ProcessState.ExitCode()
}
