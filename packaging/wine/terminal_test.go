//go:build linux

package wine

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inTerminal runs a program in a terminal, where it can ask: when it has said what it
// is asked with, the answer is typed. It gives what was on the terminal.
func inTerminal(t *testing.T, cmd *exec.Cmd, question, answer string) (string, error) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("cannot make a terminal: %v", err)
	}
	defer func() { _ = master.Close() }()
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 200})
	}
	if err != nil {
		t.Fatalf("cannot make a terminal: %v", err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	_ = slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown []byte
	read := make(chan struct{})
	go func() {
		defer close(read)
		typed := false
		buffer := make([]byte, 1<<12)
		for {
			n, err := master.Read(buffer)
			mu.Lock()
			shown = append(shown, buffer[:n]...)
			if !typed && bytes.Contains(shown, []byte(question)) {
				typed = true
				// The echo goes off after the question, where nobody outside can see it: a person isn't as fast.
				// A program that is gone doesn't take it, which its end shows.
				time.AfterFunc(2*time.Second, func() { _, _ = master.WriteString(answer + "\r") })
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		err = fmt.Errorf("it hangs: %w", <-ended)
	}
	// What it has started may hold the terminal: what the program wrote is read by then.
	select {
	case <-read:
	case <-time.After(time.Second):
	}
	mu.Lock()
	defer mu.Unlock()
	return string(shown), err
}
