//go:build linux

package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal with a program in it.
type terminal struct {
	*process
	keys *os.File

	mu     sync.Mutex
	output []byte
}

// inTerminal starts a program as a shell would: in the foreground of a terminal of its own.
func (s *sandbox) inTerminal(t testing.TB, name string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("cannot make a terminal: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 120}); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	tty := &terminal{process: &process{done: make(chan struct{})}, keys: master}
	tty.cmd = exec.Command(name, args...)
	tty.cmd.Dir, tty.cmd.Env = s.path("home"), append(append([]string{}, s.env...), "TERM=xterm-256color")
	tty.cmd.Stdin, tty.cmd.Stdout, tty.cmd.Stderr = slave, slave, slave
	tty.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := tty.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	t.Cleanup(func() { master.Close() })
	go func() {
		defer close(tty.done)
		_ = tty.cmd.Wait() // how it ended is in ProcessState
	}()
	go func() { // ends with the terminal
		buf := make([]byte, 1<<16)
		for {
			n, err := master.Read(buf)
			tty.mu.Lock()
			tty.output = append(tty.output, buf[:n]...)
			tty.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return tty
}

// shows tells whether text has been written to it.
func (tty *terminal) shows(text string) bool {
	tty.mu.Lock()
	defer tty.mu.Unlock()
	return bytes.Contains(tty.output, []byte(text))
}

// tail is the end of what was written to it.
func (tty *terminal) tail() []byte {
	tty.mu.Lock()
	defer tty.mu.Unlock()
	return tty.output[max(0, len(tty.output)-2000):]
}

func (tty *terminal) types(t testing.TB, keys string) {
	t.Helper()
	if _, err := tty.keys.WriteString(keys); err != nil {
		t.Fatalf("cannot type: %v", err)
	}
}
