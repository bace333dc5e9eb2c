package platform

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLookAtLock: by ourselves, by another process, and by none; a look makes no
// file, and doesn't stand in the way.
func TestLookAtLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	look := func() LockLook {
		t.Helper()
		l, err := LookAtLock(path)
		must(t, err)
		return l
	}
	if l := look(); l.Held {
		t.Errorf("absent: %+v", l)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the look made the file")
	}
	ours, err := TryServerLock(path)
	must(t, err)
	self, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	if l := look(); !l.Held || l.PID != os.Getpid() || l.Name != strings.TrimSpace(string(self)) {
		t.Errorf("ours: %+v", l)
	}
	if l, err := LookAtServerLock(path); err != nil || l != look() {
		t.Errorf("ours, as a server's: %+v, %v", l, err)
	}
	if l, err := tryShared(path); err != nil || !l.Held {
		t.Errorf("ours, tried: %+v, %v", l, err)
	}
	// Who waits doesn't hold.
	cmd := exec.Command(program(t, "flock", "util-linux"), path, "sleep", "600")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
	})
	eventually(t, "another process waits", func() bool {
		list, err := os.ReadFile("/proc/locks")
		return err == nil && strings.Contains(string(list), "-> FLOCK")
	})
	if l := look(); l.PID != os.Getpid() {
		t.Errorf("ours, with one who waits: %+v", l)
	}
	must(t, ours.Unlock())
	eventually(t, "the other holds it", func() bool { return look().PID == cmd.Process.Pid })
	if l := look(); l.Name != "flock" {
		t.Errorf("another's: %+v", l)
	}
	must(t, unix.Kill(-cmd.Process.Pid, unix.SIGKILL))
	_ = cmd.Wait()
	eventually(t, "it is free", func() bool { return !look().Held })
	if l, err := tryShared(path); err != nil || l.Held {
		t.Errorf("free, tried: %+v, %v", l, err)
	}
	if l, err := tryShared(path + ".not"); err != nil || l.Held {
		t.Errorf("absent, tried: %+v, %v", l, err)
	}
	again, err := TryLock(path)
	must(t, err)
	must(t, again.Unlock())
}

func TestLockIn(t *testing.T) {
	t.Parallel()
	const list = `1: OFDLCK ADVISORY  WRITE -1 fe:00:11 0 EOF
2: FLOCK  ADVISORY  WRITE 999999999 fe:00:22 0 EOF
2: -> FLOCK  ADVISORY  WRITE 888 fe:00:33 0 EOF
3: FLOCK  ADVISORY  READ 777 fe:00:44 0 EOF
4: FLOCK  ADVISORY  WRITE 999999998 00:2a:55 0 EOF
nonsense
5: FLOCK x
`
	for _, test := range []struct {
		device, inode string
		opened        bool
		want          LockLook
	}{
		{"fe:00", "11", false, LockLook{Held: true}},
		{"fe:00", "22", false, LockLook{Held: true, PID: 999999999}},
		{"fe:00", "33", true, LockLook{}},
		{"fe:00", "44", true, LockLook{}},
		{"fe:00", "2", true, LockLook{}},
		{"00:1f", "55", false, LockLook{}}, // another file with that number
		{"00:1f", "55", true, LockLook{Held: true, PID: 999999998}},
		{"00:1f", "11", true, LockLook{}},
	} {
		if got := lockIn(list, test.device, test.inode, func(int) bool { return test.opened }); got != test.want {
			t.Errorf("%s:%s is %+v", test.device, test.inode, got)
		}
	}
}

func TestReadTail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	must(t, os.WriteFile(path, []byte("0123456789"), 0o600))
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	must(t, os.Symlink(path, link))
	must(t, unix.Mkfifo(fifo, 0o600))
	for _, test := range []struct {
		path   string
		most   int64
		follow bool
		want   string
		cut    bool
		fails  string
	}{
		{path, 4, false, "6789", true, ""},
		{path, 10, false, "0123456789", false, ""},
		{path, 100, true, "0123456789", false, ""},
		{link, 3, true, "789", true, ""},
		{link, 3, false, "", false, "isn't a regular file"},
		{fifo, 3, true, "", false, "isn't a regular file"},
		{dir, 3, true, "", false, "isn't a regular file"},
		{"/dev/zero", 3, true, "", false, "isn't a regular file"},
		{path + "x", 3, true, "", false, "no such file"},
	} {
		data, cut, err := ReadTail(test.path, test.most, test.follow)
		if string(data) != test.want || cut != test.cut || (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s, %d: %q, %v, %v", test.path, test.most, data, cut, err)
		}
	}
}

func TestCheckPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "link")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Symlink(dir, link))
	must(t, os.Chmod(dir, 0o700))
	for _, path := range []string{dir, file} {
		if err := CheckPrivate(path); err != nil {
			t.Error(err)
		}
	}
	must(t, os.Chmod(file, 0o640))
	must(t, os.Chmod(dir, 0o711))
	for path, says := range map[string]string{
		file: "run: chmod 600 " + file, dir: "run: chmod 700 " + dir, link: "symbolic link", filepath.Join(dir, "none"): "no such file",
	} {
		if err := CheckPrivate(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
		t.Error("the check has changed the mode")
	}
	if err := CheckWritable("/proc/version"); err == nil && os.Geteuid() != 0 {
		t.Error("/proc/version is writable")
	}
	if err := CheckWritable(file); err != nil {
		t.Error(err)
	}
	if free, err := FreeSpace(filepath.Join(dir, "not", "there")); err != nil || free == 0 {
		t.Errorf("%d, %v", free, err)
	}
}

func TestSystemNameAndClock(t *testing.T) {
	t.Parallel()
	if name := SystemName(); !strings.Contains(name, "Linux ") || strings.Contains(name, "\x00") {
		t.Errorf("%q", name)
	}
	if _, err := ClockSynchronised(); err != nil && !errors.Is(err, ErrUnknownClock) {
		t.Error(err)
	}
}
