//go:build unix

package platform

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkError wants an error that contains want, or none for "".
func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mkdir makes a directory of that very mode.
func mkdir(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	must(t, os.Mkdir(path, 0o700))
	must(t, os.Chmod(path, mode))
	return path
}

func TestEnsurePrivateDir(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, base string) string
		err   string
	}{
		{name: "absent", setup: func(_ *testing.T, base string) string { return base + "/a/b/c" }},
		{name: "private", setup: func(t *testing.T, base string) string { return mkdir(t, base+"/d", 0o700) }},
		{name: "readable by others is tightened", setup: func(t *testing.T, base string) string { return mkdir(t, base+"/d", 0o755) }},
		{name: "trailing slash", setup: func(t *testing.T, base string) string { return mkdir(t, base+"/d", 0o755) + "/" }},
		{name: "below a link", setup: func(t *testing.T, base string) string {
			must(t, os.Symlink(mkdir(t, base+"/d", 0o755), base+"/link"))
			return base + "/link/e"
		}},
		{name: "group may write", err: "has mode 0770; run: chmod 700 ", setup: func(t *testing.T, base string) string { return mkdir(t, base+"/d", 0o770) }},
		{name: "world may write", err: "has mode 0777; run: chmod 700 ", setup: func(t *testing.T, base string) string { return mkdir(t, base+"/d", 0o777) }},
		{name: "symbolic link", err: "is a symbolic link or not a directory", setup: func(t *testing.T, base string) string {
			must(t, os.Symlink(mkdir(t, base+"/d", 0o700), base+"/link"))
			return base + "/link"
		}},
		{name: "link to nothing", err: "is a symbolic link", setup: func(t *testing.T, base string) string {
			must(t, os.Symlink(base+"/nowhere", base+"/link"))
			return base + "/link"
		}},
		{name: "file", err: "not a directory", setup: func(t *testing.T, base string) string {
			must(t, os.WriteFile(base+"/f", nil, 0o600))
			return base + "/f"
		}},
		{name: "below a file", err: "cannot create the directory", setup: func(t *testing.T, base string) string {
			must(t, os.WriteFile(base+"/f", nil, 0o600))
			return base + "/f/d"
		}},
		{name: "relative", err: "is relative", setup: func(*testing.T, string) string { return "some/dir" }},
		{name: "another user's", err: "and not to you", setup: func(t *testing.T, base string) string {
			if !asRoot(t) {
				return "/" // belongs to root
			}
			d := mkdir(t, base+"/d", 0o700)
			must(t, os.Chown(d, stranger, stranger))
			return d
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := tt.setup(t, t.TempDir())
			err := EnsurePrivateDir(path)
			checkError(t, err, tt.err)
			if err != nil {
				checkError(t, err, strings.TrimSuffix(path, "/")) // it names the path
				return
			}
			info, err := os.Lstat(path)
			must(t, err)
			if !info.IsDir() || info.Mode().Perm() != 0o700 {
				t.Errorf("mode %v", info.Mode())
			}
		})
	}
}

func TestModesWhateverTheUmask(t *testing.T) {
	t.Parallel()
	for _, mask := range []string{"0", "22", "77", "277", "777"} {
		t.Run(mask, func(t *testing.T) {
			t.Parallel()
			_, got := spawn(t, "umask", t.TempDir(), mask)
			if want := "700 700 600 600"; got != want {
				t.Errorf("modes %s, want %s", got, want)
			}
		})
	}
}

func TestWriteFileAtomic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(path, []byte("old"), 0o644))
	must(t, WriteFileAtomic(path, []byte("new")))
	info, err := os.Stat(path)
	must(t, err)
	if got, _ := os.ReadFile(path); string(got) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("content %q, mode %v", got, info.Mode())
	}

	// What can't be replaced stays, and nothing is left lying about.
	occupied := mkdir(t, filepath.Join(dir, "directory"), 0o700)
	checkError(t, WriteFileAtomic(occupied, nil), "cannot write "+occupied)
	checkError(t, WriteFileAtomic(filepath.Join(dir, "absent", "file"), nil), "cannot write")
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("left over: %v", entries)
	}
}

func TestWriteFileAtomicIsNeverSeenHalf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	contents := [][]byte{bytes.Repeat([]byte("a"), 1<<16), bytes.Repeat([]byte("b"), 1<<10)}
	must(t, WriteFileAtomic(path, contents[0]))
	written := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 30 && err == nil; i++ {
			err = WriteFileAtomic(path, contents[i%2])
		}
		written <- err
	}()
	for {
		got, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(got, contents[0]) && !bytes.Equal(got, contents[1]) {
			t.Fatalf("read %d bytes that nobody wrote", len(got))
		}
		select {
		case err := <-written:
			must(t, err)
			return
		default:
		}
	}
}
