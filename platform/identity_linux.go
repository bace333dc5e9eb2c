package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// bootID is a random number that the kernel draws at each boot (random(4)).
var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("cannot tell this boot from others: %w", err)
	}
	return string(bytes.TrimSpace(b)), nil
})

// stat is what we use of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	state   byte
	ppid    int
	threads int
	start   uint64 // clock ticks since boot
}

// ended tells whether the process only waits to be reaped. The first thread of a
// killed process can be a zombie while others still hold its files and locks, for
// tens of milliseconds on a busy machine.
func (s stat) ended() bool {
	return (s.state == 'Z' || s.state == 'X' || s.state == 'x') && s.threads <= 1
}

func (s stat) identity(pid int, boot string) Identity {
	return Identity{PID: pid, Start: strconv.FormatUint(s.start, 10), Boot: boot}
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, ErrNoProcess
	}
	if err != nil {
		return stat{}, err
	}
	return parseStat(b)
}

// parseStat reads the fields after the name, which may hold spaces and
// parentheses itself and ends at the last ")".
func parseStat(b []byte) (stat, error) {
	// After the name come field 3 (state), 4 (ppid) … 20 (threads) … 22 (start time).
	const ppid, threads, start = 4 - 3, 20 - 3, 22 - 3
	_, rest, ok := bytesCutLast(b, ')')
	fields := bytes.Fields(rest)
	if !ok || len(fields) <= start || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("cannot read process status %q", b)
	}
	parent, err := strconv.Atoi(string(fields[ppid]))
	if err != nil {
		return stat{}, fmt.Errorf("cannot read process status %q: %w", b, err)
	}
	count, err := strconv.Atoi(string(fields[threads]))
	if err != nil {
		return stat{}, fmt.Errorf("cannot read process status %q: %w", b, err)
	}
	ticks, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("cannot read process status %q: %w", b, err)
	}
	return stat{state: fields[0][0], ppid: parent, threads: count, start: ticks}, nil
}

func bytesCutLast(b []byte, sep byte) (before, after []byte, found bool) {
	i := bytes.LastIndexByte(b, sep)
	if i < 0 {
		return b, nil, false
	}
	return b[:i], b[i+1:], true
}

func identify(pid int) (id Identity, ended bool, err error) {
	if pid <= 0 {
		return Identity{}, false, ErrNoProcess
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, false, err
	}
	s, err := readStat(pid)
	if err != nil {
		return Identity{}, false, err
	}
	return s.identity(pid, boot), s.ended(), nil
}

// openPidfd opens a descriptor that stands for this very process: the identity
// is compared after it was opened, so a pid that was used again can't be meant.
func openPidfd(id Identity) (int, error) {
	if id.PID <= 0 {
		return -1, ErrNoProcess
	}
	fd, err := unix.PidfdOpen(id.PID, 0) // close-on-exec by itself
	switch {
	// EINVAL and ENOENT: the pid is a thread's, never a process's.
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return -1, ErrNoProcess
	case errors.Is(err, unix.ENOSYS):
		return -1, errors.New("cannot watch processes: this kernel has no pidfd_open; Linux 5.3 or newer is needed")
	case err != nil:
		return -1, fmt.Errorf("cannot open process %d: %w", id.PID, err)
	}
	if !id.Alive() {
		_ = unix.Close(fd)
		return -1, ErrNoProcess
	}
	return fd, nil
}

// Signal sends sig to this very process. When it has ended, or its pid is
// another's now, nobody is signalled and ErrNoProcess is returned.
func (i Identity) Signal(sig Sig) error {
	s, ok := map[Sig]unix.Signal{Terminate: unix.SIGTERM, Kill: unix.SIGKILL}[sig]
	if !ok {
		return fmt.Errorf("cannot signal process %d: unknown signal %d", i.PID, sig)
	}
	fd, err := openPidfd(i)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.PidfdSendSignal(fd, s, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return ErrNoProcess
	}
	if err != nil {
		return fmt.Errorf("cannot signal process %d: %w", i.PID, err)
	}
	return nil
}

// Watch gives a channel that is closed when the process has ended, reaped or not;
// at once when it has ended already. It need not be our child. The channel stays
// open when ctx ends first. One goroutine waits in the network poller, with no
// thread of its own, until either.
func Watch(ctx context.Context, id Identity) (<-chan struct{}, error) {
	done := make(chan struct{})
	fd, err := openPidfd(id)
	if errors.Is(err, ErrNoProcess) {
		close(done)
		return done, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // what makes os.NewFile use the poller
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	conn, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // fails when the poller doesn't take it
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("cannot watch process %d: %w", id.PID, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	go func() {
		defer func() { _ = f.Close() }()
		defer stop()
		if conn.Read(readable) == nil {
			close(done)
		}
	}()
	return done, nil
}

// readable tells whether the descriptor can be read now; a pidfd can once its process has ended.
func readable(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}
