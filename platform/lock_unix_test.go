//go:build unix

package platform

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// lockKinds are the locks that can be tried.
var lockKinds = map[string]func(path string) (interface{ Unlock() error }, error){
	"file":   func(p string) (interface{ Unlock() error }, error) { return TryLock(p) },
	"server": func(p string) (interface{ Unlock() error }, error) { return TryServerLock(p) },
}

func TestLockExcludes(t *testing.T) {
	t.Parallel()
	for name, try := range lockKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			l, err := try(path)
			must(t, err)
			info, err := os.Stat(path)
			must(t, err)
			if info.Mode().Perm() != 0o600 || info.Size() != 0 {
				t.Errorf("mode %v, size %d", info.Mode(), info.Size())
			}
			if _, err := try(path); !errors.Is(err, ErrLocked) {
				t.Errorf("second in this process: %v", err)
			}
			if _, said := spawn(t, "flock", path); said != "held" {
				t.Errorf("another process: %s", said)
			}
			must(t, l.Unlock())
			must(t, l.Unlock())
			if again, err := os.Stat(path); err != nil || !os.SameFile(info, again) {
				t.Errorf("the file is another after unlock (%v)", err)
			}
			holder, said := spawn(t, "flock", path)
			if said != "ready" {
				t.Fatalf("after unlock: %s", said)
			}
			if _, err := try(path); !errors.Is(err, ErrLocked) {
				t.Errorf("held by another process: %v", err)
			}
			holder.kill()
			l, err = try(path)
			must(t, err)
			must(t, l.Unlock())
		})
	}
}

func TestLockOfEightProcessesOneIsGranted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	said := make(map[string]int)
	for range 8 {
		_, s := spawn(t, "trylock", path)
		said[s]++
	}
	if said["granted"] != 1 || said[ErrLocked.Error()] != 7 {
		t.Errorf("said %v", said)
	}
}

func TestLockErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := TryLock(filepath.Join(dir, "absent", "lock")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("absent directory: %v", err)
	}
	if _, err := TryServerLock(dir); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := TryLockDir(filepath.Join(dir, "absent")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("absent: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if _, err := TryLockDir(filepath.Join(dir, "file")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a file: %v", err)
	}
}

func TestTryLockDir(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := mkdir(t, filepath.Join(base, "data"), 0o755)
	other := filepath.Join(base, "other name")
	must(t, os.Symlink(dir, other))
	l, err := TryLockDir(dir)
	must(t, err)
	if _, err := TryLockDir(other); !errors.Is(err, ErrLocked) {
		t.Errorf("by another name: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("files were made: %v %v", entries, err)
	}
	must(t, l.Unlock())
	l, err = TryLockDir(other)
	must(t, err)
	must(t, l.Unlock())
}

func TestTryServerLockMakesTheDirectory(t *testing.T) {
	t.Parallel()
	l, err := TryServerLock(filepath.Join(t.TempDir(), "opencode", "service.json.lock"))
	must(t, err)
	must(t, l.Unlock())
}
