package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"intermission/platform"
)

// BundleOptions says what is written where.
type BundleOptions struct {
	Path      string // ends with .zip, .tar.gz or .tgz
	Prompts   bool   // with what was said in sessions, and with the server's output
	Overwrite bool   // also where a file is already
}

// Bundled is what was written.
type Bundled struct {
	Path  string   `json:"path"`  // absolute
	Bytes int      `json:"bytes"` // of the archive
	Files []string `json:"files"`
	// Without says what isn't in it and why, a sentence each; never nil.
	Without []string `json:"without"`
}

// Text tells a person what was written, and to look at it.
func (b Bundled) Text() string {
	var t strings.Builder
	fmt.Fprintf(&t, "Written: %s (%s). It holds:\n", b.Path, humanize.Bytes(uint64(b.Bytes)))
	for _, name := range b.Files {
		fmt.Fprintf(&t, "  %s\n", name)
	}
	t.WriteString("Not in it:\n")
	for _, s := range b.Without {
		fmt.Fprintf(&t, "  %s\n", s)
	}
	t.WriteString("Look at it before you send it to anybody: nothing was sent.\n")
	return t.String()
}

// file is one file of a bundle.
type file struct {
	name string
	data []byte
}

// bundleTimeout bounds the questions that a bundle asks, beside those of the report.
const bundleTimeout = 20 * time.Second

// Bundle writes an archive for those who help: the report, our state and our logs,
// readable by its owner only, all of it or nothing. Passwords and keys are taken
// out of every byte of it, and what was said in sessions too, unless Prompts is set.
// Nothing is sent anywhere. A file that is there is left as it is, unless Overwrite is set.
func Bundle(ctx context.Context, o Options, r Report, b BundleOptions) (Bundled, error) {
	path, pack, err := target(b)
	if err != nil {
		return Bundled{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	c := &collection{patient: newPatient(ctx, o), prompts: b.Prompts}
	c.secrets = c.findSecrets()
	c.gather(ctx, r)
	files, without := c.redacted()
	data, err := pack(files, r.At)
	if err == nil {
		err = write(path, data, b.Overwrite)
	}
	if err != nil {
		return Bundled{}, fmt.Errorf("cannot write the bundle: %w", err)
	}
	done := Bundled{Path: path, Bytes: len(data), Without: without}
	for _, f := range files {
		done.Files = append(done.Files, f.name)
	}
	return done, nil
}

// target looks whether the bundle can be written before anything is asked.
func target(b BundleOptions) (path string, pack func([]file, time.Time) ([]byte, error), err error) {
	switch name := strings.ToLower(b.Path); {
	case b.Path == "-":
		return "", nil, errors.New("a bundle isn't written to standard output; name a file that ends with .zip or .tar.gz")
	case strings.HasSuffix(name, ".zip"):
		pack = zipped
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		pack = tarred
	default:
		return "", nil, fmt.Errorf("cannot tell what kind of archive %q is to be; name a file that ends with .zip or .tar.gz", b.Path)
	}
	if path, err = filepath.Abs(b.Path); err != nil {
		return "", nil, err
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path, pack, nil
	case err != nil:
		return "", nil, err
	case !info.Mode().IsRegular():
		return "", nil, fmt.Errorf("%s is there and isn't a file; name another", path)
	case !b.Overwrite:
		return "", nil, existsError(path)
	}
	return path, pack, nil
}

func existsError(path string) error {
	return fmt.Errorf("%s is there already; name another file, or add --force", path)
}

// write makes the whole file appear at once, mode 0600.
func write(path string, data []byte, overwrite bool) error {
	if overwrite {
		return platform.WriteFileAtomic(path, data)
	}
	// To give a file a second name fails when that is taken; to rename it does not.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".intermission-bundle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, filepath.Base(path))
	if err := platform.WriteFileAtomic(made, data); err != nil {
		return err
	}
	err = os.Link(made, path)
	if errors.Is(err, fs.ErrExist) {
		return existsError(path)
	}
	if err == nil {
		return nil
	}
	// A disk without second names, as FAT.
	if _, there := os.Lstat(path); !errors.Is(there, fs.ErrNotExist) {
		return existsError(path)
	}
	return os.Rename(made, path)
}
