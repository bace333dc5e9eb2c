//go:build unix

package platform

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hostileFiles are what may lie in the place of a small file, with what is said of it.
func hostileFiles(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, unix.Mkfifo(at("fifo"), 0o600))
	must(t, unix.Mkfifo(at("other fifo"), 0o600))
	must(t, os.Symlink(at("other fifo"), at("link to a fifo")))
	must(t, os.Symlink("/dev/zero", at("zero")))
	must(t, os.WriteFile(at("large"), nil, 0o600))
	must(t, os.Truncate(at("large"), 300<<20))
	must(t, os.WriteFile(at("a byte too large"), make([]byte, smallMax+1), 0o600))
	must(t, os.Mkdir(at("directory"), 0o700))
	return map[string]string{
		at("fifo"): "isn't a regular file", at("link to a fifo"): "isn't a regular file", at("zero"): "isn't a regular file",
		at("large"): "is larger than 64 kB", at("a byte too large"): "is larger than 64 kB", at("directory"): "is a directory",
	}
}

func TestReadSmall(t *testing.T) {
	t.Parallel()
	for path, want := range hostileFiles(t) {
		_, err := readSmall(path)
		checkError(t, err, want)
		checkError(t, err, path)
	}
	dir := t.TempDir()
	_, err := readSmall(filepath.Join(dir, "absent"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	full := filepath.Join(dir, "full")
	must(t, os.WriteFile(full, make([]byte, smallMax), 0o600))
	must(t, os.Symlink("full", filepath.Join(dir, "link")))
	must(t, os.Symlink(os.DevNull, filepath.Join(dir, "null")))
	for name, size := range map[string]int{"full": smallMax, "link": smallMax, "null": 0} {
		if got, err := readSmall(filepath.Join(dir, name)); err != nil || len(got) != size {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestWriteFileAtomicOverAnything replaces what isn't a directory; nothing is written through it.
func TestWriteFileAtomicOverAnything(t *testing.T) {
	t.Parallel()
	for path, is := range hostileFiles(t) {
		err := WriteFileAtomic(path, []byte("new"))
		if is == "is a directory" {
			checkError(t, err, "cannot write "+path)
			continue
		}
		must(t, err)
		if got, err := readSmall(path); err != nil || string(got) != "new" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestLiveSocketBesideAHostileRecord(t *testing.T) {
	t.Parallel()
	for path := range hostileFiles(t) {
		p := Paths{State: t.TempDir(), Socket: "/absent/intermission.sock"}
		must(t, os.Rename(path, p.SocketRecord()))
		if got := p.LiveSocket(); got != p.Socket {
			t.Errorf("%s: %q", path, strings.ToValidUTF8(got[:min(len(got), 100)], "?"))
		}
	}
}
