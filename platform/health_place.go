package platform

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// CheckPrivate tells what is wrong with a directory or file of ours: that it is
// another user's, a link, or open to others. It changes nothing. One that isn't
// there is fs.ErrNotExist.
func CheckPrivate(path string) error { return checkPrivate(path) }

// CheckWritable tells whether we may write to a file or directory, without opening it.
func CheckWritable(path string) error {
	if err := checkWritable(path); err != nil {
		return fmt.Errorf("cannot write to %s: %w", path, err)
	}
	return nil
}

// FreeSpace is how many bytes we may still write on the disk that path is on. What
// of path isn't there yet is left away.
func FreeSpace(path string) (uint64, error) {
	for {
		_, err := os.Stat(path)
		if above := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && above != path {
			path = above
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("cannot tell how much room there is: %w", err)
		}
		break
	}
	free, err := freeSpace(path)
	if err != nil {
		return 0, fmt.Errorf("cannot tell how much room there is at %s: %w", path, err)
	}
	return free, nil
}

// ReadTail reads the last bytes of a file, at most so many, that anybody may have put there in
// the place of ours, and tells whether there was more. It never waits, as for the
// other end of a FIFO. What is no regular file is an error, and so is a link,
// unless links are followed.
func ReadTail(path string, most int64, follow bool) (data []byte, cut bool, err error) {
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	info, err := look(path) // before it is opened, for to open a device may be an act
	if err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, false, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openAtOnce, 0)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err == nil { // the name may lead elsewhere by now
		err = checkRegular(path, info)
	}
	if err != nil {
		return nil, false, err
	}
	begin := max(0, info.Size()-most)
	data, err = io.ReadAll(io.NewSectionReader(f, begin, most))
	return data, begin > 0, err
}

func checkRegular(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return &fs.PathError{Op: "read", Path: path, Err: errors.New("isn't a regular file")}
}
