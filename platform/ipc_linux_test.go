package platform

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestListenLeavesABusyListenerAlone has one whose queue is full: connecting
// fails, but not because nobody is there.
func TestListenLeavesABusyListenerAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	socket := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { must(t, unix.Close(fd)) })
		return fd
	}
	listener := socket()
	must(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
	must(t, os.Chmod(path, 0o600))
	must(t, unix.Listen(listener, 0))
	eventually(t, "the queue is full", func() bool {
		return errors.Is(unix.Connect(socket(), &unix.SockaddrUnix{Name: path}), unix.EAGAIN)
	})
	_, err := Listen(path)
	checkError(t, err, "cannot listen on "+path)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("its socket is gone: %v", err)
	}
}
