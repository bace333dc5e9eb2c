package platform

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// holders looks through what the processes of this user have open (proc_pid_fd(5)).
func holders(path string) ([]Holder, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return nil, err
	}
	booted := time.Now().Add(-time.Duration(since.Nano()))
	var list []Holder
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !opens(pid, path) {
			continue
		}
		s, err := readStat(pid)
		if errors.Is(err, ErrNoProcess) || err == nil && s.ended() {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Holder{PID: pid, Since: booted.Add(time.Duration(s.start) * time.Second / userHertz)})
	}
	return list, nil
}

// userHertz is how many clock ticks of /proc a second has, on every Linux.
const userHertz = 100

func opens(pid int, path string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false // it has ended, or is another user's
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && to == path {
			return true
		}
	}
	return false
}
