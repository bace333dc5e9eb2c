package platform

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/gofrs/flock"
)

// ErrLocked says that somebody else holds the lock.
var ErrLocked = errors.New("locked by another process")

// lockAttempts bounds how often a lock is taken again because its file was
// replaced between open and grant; once is rare already.
const lockAttempts = 10

// Lock is a lock that is held. The kernel releases it when this process ends,
// however it ends. Child processes don't inherit it.
type Lock struct {
	once    sync.Once
	release func() error
	err     error
}

// Unlock releases the lock. The file stays: removing a lock file would let two
// processes hold "the" lock. Further calls do nothing.
func (l *Lock) Unlock() error {
	l.once.Do(func() { l.err = l.release() })
	return l.err
}

// TryLock takes the lock of a file, which is created (0600) in an existing
// directory when absent. It returns ErrLocked when another holder has it, in
// this process or another.
func TryLock(path string) (*Lock, error) {
	for range lockAttempts {
		f := flock.New(path, flock.SetPermissions(0o600))
		ok, err := f.TryLock()
		if err != nil {
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if !ok {
			_ = f.Close()
			return nil, ErrLocked
		}
		// A lock on a file that has lost its name excludes nobody.
		held, err := f.Stat()
		if named, nerr := os.Stat(path); err == nil && nerr == nil && os.SameFile(held, named) {
			return &Lock{release: f.Unlock}, nil
		}
		_ = f.Unlock()
	}
	return nil, fmt.Errorf("cannot lock %s: the file is being replaced again and again", path)
}
