package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func lookAtServerLock(path string) (LockLook, error) { return lookAtLock(path) }

// lookAtLock reads the kernel's own list (proc_locks(5)): to take the lock, be it
// for a microsecond, would turn away a server that starts in that moment.
func lookAtLock(path string) (LockLook, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return LockLook{}, nil
	}
	if err != nil {
		return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	list, err := os.ReadFile("/proc/locks")
	if errors.Is(err, fs.ErrNotExist) {
		return tryShared(path)
	}
	if err != nil {
		return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return LockLook{}, fmt.Errorf("cannot look at the lock %s: %w", path, err)
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev)) //nolint:unconvert // another width on other machines
	return lockIn(string(list), device, strconv.FormatUint(st.Ino, 10), func(pid int) bool { return hasOpen(pid, info) }), nil
}

// lockIn finds who holds a file's lock in the text of /proc/locks. On btrfs and
// overlayfs the device there is another than stat's; then it counts that the
// process has this very file open.
func lockIn(list, device, inode string, opened func(pid int) bool) LockLook {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] == "->" || f[3] == "READ" { // "->" only waits; a shared lock is somebody's look
			continue
		}
		at := strings.LastIndexByte(f[5], ':')
		if at < 0 || f[5][at+1:] != inode {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil || pid < 1 {
			pid = 0 // of an open file and no process, or of another pid name space
		}
		if f[5][:at] != device && (pid == 0 || !opened(pid)) {
			continue
		}
		return LockLook{Held: true, PID: pid, Name: programName(pid)}
	}
	return LockLook{}
}

// hasOpen tells whether the process has the file open.
func hasOpen(pid int, file fs.FileInfo) bool {
	open, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	for _, fd := range open {
		if info, err := os.Stat(fd); err == nil && os.SameFile(info, file) {
			return true
		}
	}
	return false
}

// programName is the name that the kernel keeps of the process's program, at most 15 bytes; "" when there is none.
func programName(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if pid < 1 || err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
