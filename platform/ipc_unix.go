//go:build unix

package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen listens on a Unix socket (0600) in a directory that EnsurePrivateDir
// accepts. A socket of ours that nobody listens on any more is replaced; one that
// is in use, or anything else of that name, is an error. The caller holds the
// instance lock: between two callers at once the replacement would be a race.
//
// Connections of other users are closed before Accept returns them; root is
// another user too, unless we are root. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := checkSocketLength(path); err != nil {
		return nil, err
	}
	if err := EnsurePrivateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// On Linux bind gives the file the mode of the descriptor, so that it never has
	// another. macOS refuses this fchmod: there the directory is the protection until chmod.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("cannot make the socket private: %w", err)
	}
	return &ownListener{l, os.Geteuid()}, nil
}

// removeStale removes a socket of ours whose listener is gone, which only a refused connection proves.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := checkSocket(path, info); err != nil {
		return err
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("cannot listen on %s: another process listens there; stop it first", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	return nil
}

func checkSocket(path string, info fs.FileInfo) error {
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket; remove it", path)
	}
	return checkOwner(path, info)
}

// ownListener accepts connections of one user only.
type ownListener struct {
	net.Listener
	uid int
}

func (l *ownListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && uid == l.uid {
			return c, nil
		}
		_ = c.Close()
	}
}

// peerUID is the user at the other end, as the kernel recorded it at connect (or listen).
func peerUID(c net.Conn) (int, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, errors.New("cannot tell who is at the other end")
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	uid, uerr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { uid, uerr = credentialUID(int(fd)) }); err != nil {
		return -1, err
	}
	return uid, uerr
}

// Dial connects to the socket, after it made sure that directory, socket and
// listener are ours and open to nobody else. It returns ErrNoListener when nobody listens.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if err := checkSocketLength(path); err != nil {
		return nil, err
	}
	if err := checkDialPath(path); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoListener
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", path, err)
	}
	uid, err := peerUID(c)
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("the listener runs as uid %d and not as you", uid)
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("cannot connect to %s: %w", path, err)
	}
	return c, nil
}

func checkDialPath(path string) error {
	dir := filepath.Dir(path)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoListener
	case err != nil:
		return fmt.Errorf("cannot connect to %s: %w", path, err)
	case !info.IsDir():
		return fmt.Errorf("%s is a symbolic link or not a directory; remove it or choose another directory", dir)
	}
	if err := checkOwner(dir, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return modeError("directory", dir, info, 0o700)
	}
	info, err = os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoListener
	case err != nil:
		return fmt.Errorf("cannot connect to %s: %w", path, err)
	}
	if err := checkSocket(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return modeError("socket", path, info, 0o600)
	}
	return nil
}
