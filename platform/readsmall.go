package platform

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// smallMax bounds readSmall, in bytes: what we read so is a few lines.
const smallMax = 64 << 10

func readSmall(path string) ([]byte, error) { return ReadSmall(path, smallMax) }

// ReadSmall reads a file that anybody may have put there in the place of ours. It
// never waits, as for the other end of a FIFO, and reads at most so many bytes, so that
// a device without an end costs nothing. What is no regular file, and what is larger,
// is an error; a link to one is followed. A link to the null device is an empty
// file: so people take away what they can't remove.
func ReadSmall(path string, most int64) ([]byte, error) {
	return readSmallIf(path, most, func(fs.FileInfo) error { return nil })
}

// ReadTrusted is ReadSmall for a file whose content is carried out, as a command line is:
// one that another user than us and the system's own can write is an error.
func ReadTrusted(path string, most int64) ([]byte, error) {
	return readSmallIf(path, most, func(info fs.FileInfo) error {
		if err := checkTrusted(path, info); err != nil {
			return err
		}
		behind, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		dir, err := os.Stat(filepath.Dir(behind))
		if err != nil {
			return err
		}
		return checkTrusted(filepath.Dir(behind), dir)
	})
}

func readSmallIf(path string, most int64, trusted func(fs.FileInfo) error) ([]byte, error) {
	// Looked at before, for to open a device may be an act.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkSmall(path, info, most); err != nil {
		if null, cannot := os.Stat(os.DevNull); cannot == nil && os.SameFile(info, null) {
			return nil, nil
		}
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openAtOnce, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// And again: the name may lead elsewhere by now.
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := checkSmall(path, info, most); err != nil {
		return nil, err
	}
	if err := trusted(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, tooLarge(path, most)
	}
	return data, nil
}

func checkSmall(path string, info fs.FileInfo, most int64) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("is a directory; remove it")}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("isn't a regular file; remove it")}
	case info.Size() > most:
		return tooLarge(path, most)
	}
	return nil
}

func tooLarge(path string, most int64) error {
	return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is larger than %d kB; remove it", most>>10)}
}
