package platform

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// TryLockDir locks a directory by a named mutex, made from its real path: no file
// is created in it. It returns ErrLocked when another holder has it. The mutex is
// only looked at for its existence, for its ownership would belong to a thread.
func TryLockDir(dir string) (*Lock, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot lock the directory %s: %w", dir, err)
	}
	// Global: a service has another session than the desktop.
	name, err := windows.UTF16PtrFromString(`Global\` + app + "-dir-" + pathHash(real))
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateMutex(nil, false, name)
	switch {
	case errors.Is(err, windows.ERROR_ALREADY_EXISTS):
		_ = windows.CloseHandle(h)
		return nil, ErrLocked
	case errors.Is(err, windows.ERROR_ACCESS_DENIED): // another user's
		return nil, ErrLocked
	case err != nil:
		return nil, fmt.Errorf("cannot lock the directory %s: %w", dir, err)
	}
	return &Lock{release: func() error { return windows.CloseHandle(h) }}, nil
}

// pathHash is the hash of a path as OpenCode makes it: SHA-256 of the lower-cased path.
func pathHash(path string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(path)))
	return hex.EncodeToString(sum[:])
}

// serverPipe is the pipe whose existence is the managed server's lock (OPENCODE.md, "Lock").
func serverPipe(path string) (string, error) {
	abs, err := filepath.Abs(path)
	return `\\.\pipe\opencode-process-lock-` + pathHash(abs), err
}

// ServerLock is the managed server's own lock. While we hold it, no server of
// that registration can start: one that tries exits at once. Hold it briefly.
type ServerLock struct{ Lock }

// TryServerLock takes the lock that the managed server holds while it runs: the
// only instance of a named pipe. It returns ErrLocked when a server holds it.
func TryServerLock(path string) (*ServerLock, error) {
	name, err := serverPipe(path)
	if err != nil {
		return nil, err
	}
	config, err := privatePipe()
	if err != nil {
		return nil, err
	}
	l, err := winio.ListenPipe(name, config)
	switch {
	case errors.Is(err, windows.ERROR_ACCESS_DENIED), errors.Is(err, windows.ERROR_PIPE_BUSY),
		errors.Is(err, windows.ERROR_ALREADY_EXISTS):
		return nil, ErrLocked
	case err != nil:
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	var held pipeHolder
	held.wg.Go(func() { held.keep(l) })
	return &ServerLock{Lock{release: func() error { return held.release(l) }}}, nil
}

// pipeHolder keeps the connections of those who wait: that they end is how a waiter learns of the release.
type pipeHolder struct {
	wg    sync.WaitGroup
	conns []net.Conn
}

func (h *pipeHolder) keep(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		h.conns = append(h.conns, c)
	}
}

func (h *pipeHolder) release(l net.Listener) error {
	err := l.Close()
	h.wg.Wait()
	for _, c := range h.conns {
		_ = c.Close() // an open connection would keep the name
	}
	return err
}

// waitRetry spaces attempts when the holder hangs up on those who wait but keeps the lock.
const waitRetry = 100 * time.Millisecond

// WaitServerLock waits until the lock is free and takes it. It connects to the
// holder's pipe and waits in the kernel for that connection to end, which it does
// when the holder ends or releases. When ctx ends first it returns ctx.Err().
func WaitServerLock(ctx context.Context, path string) (*ServerLock, error) {
	name, err := serverPipe(path)
	if err != nil {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l, err := TryServerLock(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		began := time.Now()
		if c, err := winio.DialPipeContext(ctx, name); err == nil {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			_, _ = io.Copy(io.Discard, c)
			stop()
			_ = c.Close()
		}
		if time.Since(began) < waitRetry {
			select {
			case <-time.After(waitRetry):
			case <-ctx.Done():
			}
		}
	}
}
