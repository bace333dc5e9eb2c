//go:build unix

package platform

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func checkPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	kind, want := "file", fs.FileMode(0o600)
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return &fs.PathError{Op: "trust", Path: path, Err: errors.New("is a symbolic link; remove it or choose another directory")}
	case info.IsDir():
		kind, want = "directory", 0o700
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return modeError(kind, path, info, want)
	}
	return nil
}

func checkWritable(path string) error { return unix.Access(path, unix.W_OK) }

func freeSpace(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
