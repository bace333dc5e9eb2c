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

// TestReadTrusted: what is carried out is nobody else's to write.
func TestReadTrusted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		setup func(t *testing.T, dir, file string)
		err   string
		root  bool // takes root
	}{
		"ours": {setup: func(*testing.T, string, string) {}},
		"readable by all": {setup: func(t *testing.T, dir, file string) {
			must(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(file, 0o644)))
		}},
		"writable by our group": {setup: func(t *testing.T, dir, file string) {
			must(t, errors.Join(os.Chmod(dir, 0o775), os.Chmod(file, 0o664)))
		}},
		"in a directory like tmp": {setup: func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777|fs.ModeSticky)) }},
		"a link to it": {setup: func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/behind"))
			must(t, os.Symlink("behind", file))
		}},
		"writable by all":       {err: "every user may write to ", setup: func(t *testing.T, _, file string) { must(t, os.Chmod(file, 0o646)) }},
		"in a directory of all": {err: "run: chmod o-w ", setup: func(t *testing.T, dir, _ string) { must(t, os.Chmod(dir, 0o777)) }},
		"a link to one of all": {err: "every user may write to ", setup: func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/behind"))
			must(t, os.Chmod(dir+"/behind", 0o666))
			must(t, os.Symlink("behind", file))
		}},
		"another user's":              {root: true, err: "neither to you", setup: func(t *testing.T, _, file string) { must(t, os.Chown(file, stranger, stranger)) }},
		"in another user's directory": {root: true, err: "neither to you", setup: func(t *testing.T, dir, _ string) { must(t, os.Chown(dir, stranger, stranger)) }},
		"a link of ours to another's": {root: true, err: "neither to you", setup: func(t *testing.T, dir, file string) {
			must(t, os.Rename(file, dir+"/behind"))
			must(t, os.Chown(dir+"/behind", stranger, stranger))
			must(t, os.Symlink("behind", file))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.root && !asRoot(t) {
				return
			}
			dir := mkdir(t, filepath.Join(t.TempDir(), "d"), 0o700)
			file := filepath.Join(dir, "f")
			must(t, os.WriteFile(file, []byte("x"), 0o600))
			tt.setup(t, dir, file)
			got, err := ReadTrusted(file, 10)
			checkError(t, err, tt.err)
			if tt.err == "" && string(got) != "x" || tt.err != "" && got != nil {
				t.Errorf("read %q", got)
			}
		})
	}
}
