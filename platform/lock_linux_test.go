package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// waited tells whether this process waits in the kernel for the lock of that file ("->" in proc_locks(5)).
func waited(t *testing.T, info os.FileInfo) bool {
	t.Helper()
	locks, err := os.ReadFile("/proc/locks")
	must(t, err)
	inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) &&
			strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) {
			return true
		}
	}
	return false
}

type waitResult struct {
	lock *ServerLock
	err  error
}

// waitLock waits for the lock aside, and returns when the kernel has queued it.
func waitLock(ctx context.Context, t *testing.T, path string) <-chan waitResult {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	result := make(chan waitResult, 1)
	go func() {
		l, err := WaitServerLock(ctx, path)
		result <- waitResult{l, err}
	}()
	eventually(t, "the waiter is queued", func() bool { return waited(t, info) })
	return result
}

func TestWaitServerLockIsGrantedWhenTheHolderDies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	holder, _ := spawn(t, "flock", path)
	result := waitLock(t.Context(), t, path)
	select {
	case r := <-result:
		t.Fatalf("granted while held: %v", r)
	default:
	}
	holder.kill()
	r := <-result
	must(t, r.err)
	if _, said := spawn(t, "flock", path); said != "held" {
		t.Errorf("another process: %s", said)
	}
	must(t, r.lock.Unlock())
}

func TestWaitServerLockTakesAFreeOneAtOnce(t *testing.T) {
	t.Parallel()
	l, err := WaitServerLock(t.Context(), filepath.Join(t.TempDir(), "new", "lock"))
	must(t, err)
	must(t, l.Unlock())
}

func TestWaitServerLockEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	holder, _ := spawn(t, "flock", path)
	info, err := os.Stat(path)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	result := waitLock(ctx, t, path)
	cancel()
	if r := <-result; !errors.Is(r.err, context.Canceled) || r.lock != nil {
		t.Errorf("result %v", r)
	}
	if !waited(t, info) {
		t.Error("the abandoned waiter left the queue, which a flock can't: is this test still right?")
	}
	holder.finish()
	// The abandoned grant is given back.
	eventually(t, "the lock is free", func() bool {
		l, err := TryServerLock(path)
		return err == nil && l.Unlock() == nil
	})
	if _, err := WaitServerLock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestWaitServerLockFollowsAReplacedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, next := filepath.Join(dir, "lock"), filepath.Join(dir, "next")
	old, _ := spawn(t, "flock", path)
	result := waitLock(t.Context(), t, path)
	successor, _ := spawn(t, "flock", next)
	must(t, os.Rename(next, path))
	info, err := os.Stat(path)
	must(t, err)
	old.finish()
	// A lock on the old file is worth nothing while the successor holds the new one.
	eventually(t, "the waiter is queued on the new file", func() bool { return waited(t, info) })
	successor.finish()
	r := <-result
	must(t, r.err)
	if _, err := TryServerLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("the granted lock excludes nobody: %v", err)
	}
	must(t, r.lock.Unlock())
}

func TestLocksAreNotInherited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	server, err := TryServerLock(path)
	must(t, err)
	own, err := TryLock(path + ".own")
	must(t, err)
	data, err := TryLockDir(dir)
	must(t, err)
	spawn(t, "block")
	must(t, errors.Join(server.Unlock(), own.Unlock(), data.Unlock()))
	server, err = TryServerLock(path)
	must(t, err)
	own, err = TryLock(path + ".own")
	must(t, err)
	data, err = TryLockDir(dir)
	must(t, err)
	must(t, errors.Join(server.Unlock(), own.Unlock(), data.Unlock()))
}
