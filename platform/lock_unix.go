//go:build unix

package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TryLockDir locks a directory itself: no file is created in it, and every name
// of the directory leads to the same lock. It returns ErrLocked when another
// holder has it.
func TryLockDir(dir string) (*Lock, error) {
	fd, err := openNoIntr(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the directory %s: %w", dir, err)
	}
	if err := flockNoIntr(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("cannot lock the directory %s: %w", dir, err)
	}
	return &Lock{release: func() error { return unlockClose(fd) }}, nil
}

// ServerLock is the managed server's own lock. While we hold it, no server of
// that registration can start: one that tries exits at once. Hold it briefly.
type ServerLock struct{ Lock }

// TryServerLock takes the lock that the managed server holds while it runs: flock
// on an empty file (OPENCODE.md, "Lock"), which is created 0600 when absent, its
// directory too. It returns ErrLocked when a server holds it.
func TryServerLock(path string) (*ServerLock, error) {
	l, err := serverLock(path, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return l, err
}

// WaitServerLock waits until the lock is free and takes it. The kernel wakes it:
// the lock is had the moment the server is gone.
//
// When ctx ends first it returns ctx.Err() at once. A blocking flock can't be
// called back, so one goroutine and its thread then stay behind until the lock is
// granted to them, and release it in the same moment.
func WaitServerLock(ctx context.Context, path string) (*ServerLock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type grant struct {
		lock *ServerLock
		err  error
	}
	granted := make(chan grant)
	go func() {
		l, err := serverLock(path, unix.LOCK_EX)
		select {
		case granted <- grant{l, err}:
		case <-ctx.Done():
			if l != nil {
				_ = l.Unlock()
			}
		}
	}()
	select {
	case g := <-granted:
		return g.lock, g.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serverLock opens and locks the file, again when it was replaced meanwhile.
func serverLock(path string, how int) (*ServerLock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	for range lockAttempts {
		fd, err := openNoIntr(path, unix.O_RDWR|unix.O_CREAT, 0o600)
		if err != nil {
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if err := flockNoIntr(fd, how); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		if sameFile(fd, path) {
			return &ServerLock{Lock{release: func() error { return unlockClose(fd) }}}, nil
		}
		_ = unix.Close(fd)
	}
	return nil, fmt.Errorf("cannot lock %s: the file is being replaced again and again", path)
}

// sameFile tells whether the name still leads to the open file: a lock on a file
// that has lost its name excludes nobody.
func sameFile(fd int, path string) bool {
	var held, named unix.Stat_t
	if unix.Fstat(fd, &held) != nil || unix.Stat(path, &named) != nil {
		return false
	}
	return held.Dev == named.Dev && held.Ino == named.Ino
}

func flockNoIntr(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// unlockClose unlocks first: a child between fork and exec has the descriptor
// too, and would keep the lock for that moment if it were only closed.
func unlockClose(fd int) error {
	return errors.Join(unix.Flock(fd, unix.LOCK_UN), unix.Close(fd))
}
