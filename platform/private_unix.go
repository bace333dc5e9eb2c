//go:build unix

package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnsurePrivateDir makes sure that the directory exists, is ours, and is open to
// nobody else (0700). Missing parents are made 0700 too, whatever the umask; parents
// that exist are left as they are. A directory of ours that others may only read is
// tightened. One that others may write to, that belongs to somebody else, or that is a
// symbolic link is refused: its content can't be trusted.
func EnsurePrivateDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("cannot use the directory %q: the path is relative", path)
	}
	if err := makePrivate(filepath.Clean(path)); err != nil {
		return fmt.Errorf("cannot create the directory %s: %w", path, err)
	}
	// The descriptor, and not the name, is checked and changed, so that the two can't differ.
	fd, err := openNoIntr(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%s is a symbolic link or not a directory; remove it or choose another directory", path)
	case err != nil:
		return fmt.Errorf("cannot open the directory %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return modeError("directory", path, info, 0o700)
	}
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	if err := f.Chmod(0o700); err != nil {
		return fmt.Errorf("cannot make the directory private: %w", err)
	}
	return nil
}

// makePrivate creates the directory and what is missing above it.
func makePrivate(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makePrivate(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o700)
}

// checkOwner refuses what belongs to another user.
func checkOwner(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("cannot tell who owns %s", path)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d and not to you (uid %d); remove it or choose another directory",
			path, st.Uid, os.Geteuid())
	}
	return nil
}

// checkTrusted refuses what somebody else than us and root owns, or every user may write.
// A group may: on many systems each user has one of their own, and files are made so.
func checkTrusted(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return fmt.Errorf("cannot tell who owns %s", path)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return fmt.Errorf("%s belongs to uid %d and neither to you (uid %d) nor to root, so what it says isn't done; make it your own", path, st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0:
		return fmt.Errorf("every user may write to %s (mode %04o), so what it says isn't done; run: chmod o-w %s", path, info.Mode().Perm(), path)
	}
	return nil
}

func modeError(kind, path string, info fs.FileInfo, want fs.FileMode) error {
	return fmt.Errorf("the %s %s has mode %04o; run: chmod %o %s", kind, path, info.Mode().Perm(), want, path)
}

// openNoIntr is open with close-on-exec that outlasts signals.
func openNoIntr(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// openAtOnce opens a FIFO without waiting for its other end.
const openAtOnce = unix.O_NONBLOCK | unix.O_NOCTTY

// syncDirectory makes a rename in it durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	// Some file systems (FUSE, CIFS) can't sync a directory; the file itself is on disk.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}
