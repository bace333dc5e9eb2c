package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/Microsoft/go-winio"
)

func lookAtLock(path string) (LockLook, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return LockLook{}, nil
	}
	l, err := TryLock(path)
	if errors.Is(err, ErrLocked) {
		return LockLook{Held: true}, nil
	}
	if err != nil {
		return LockLook{}, err
	}
	return LockLook{}, l.Unlock()
}

// lookAtServerLock connects to the pipe that is the lock, as those do who wait for it.
func lookAtServerLock(path string) (LockLook, error) {
	name, err := serverPipe(path)
	if err != nil {
		return LockLook{}, err
	}
	patience := 300 * time.Millisecond
	c, err := winio.DialPipe(name, &patience)
	switch {
	case err == nil:
		return LockLook{Held: true}, c.Close()
	case errors.Is(err, fs.ErrNotExist):
		return LockLook{}, nil
	case errors.Is(err, winio.ErrTimeout), errors.Is(err, fs.ErrPermission):
		return LockLook{Held: true}, nil
	}
	return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
}
