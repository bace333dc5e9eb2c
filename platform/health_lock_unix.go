//go:build unix

package platform

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// tryShared tells whether a lock is held by taking a shared one, which it lets go at once.
func tryShared(path string) (LockLook, error) {
	fd, err := openNoIntr(path, unix.O_RDONLY|openAtOnce, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return LockLook{}, nil
	}
	if err != nil {
		return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	err = flockNoIntr(fd, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return LockLook{Held: true}, unix.Close(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	return LockLook{}, unlockClose(fd)
}
