//go:build linux

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper is this test binary as the first process of a PID namespace, with mounts
// of its own. It gets these words on its standard input, a line each, and says these
// on its standard output. At the end of its input it takes everything down.
const (
	wordOn       = "on"       // in: start the machine
	wordMounted  = "mounted"  // out: the machine's root can be written to
	wordRebooted = "rebooted" // out: it went down to come up again
	wordOff      = "off"      // out: it is off; the status of nspawn follows
)

// keeperVariable names the directory of the machine to a keeper.
const keeperVariable = "INTERMISSION_LAB_KEEPER"

// rebootStatus is how nspawn ends with --keep-unit when the machine wants to reboot.
const rebootStatus = 133

// rootOf is where the root of the machine in dir is mounted, for its keeper alone.
func rootOf(dir string) string { return filepath.Join(dir, "disk", "root") }

// cgroupOf is the cgroup of the machine in dir, below where a hierarchy of version 2 is mounted.
func cgroupOf(mounted, dir string) string { return filepath.Join(mounted, filepath.Base(dir)) }

// keep is a keeper's whole life, and gives its exit status.
func keep(dir string) int {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "lab: a keeper must be the first process of a PID namespace")
		return 2
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // who hears us may be gone, and then there is much to do
	err := raise(dir)
	if err == nil {
		fmt.Println(wordMounted)
		err = attend(dir)
	}
	if err = errors.Join(err, raze(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		return 1
	}
	return 0
}

// raise mounts what the machine stands on. The mounts are this process's own and end with it.
func raise(dir string) error {
	disk := filepath.Join(dir, "disk")
	mounts := []struct{ what, where, kind, options string }{
		{"proc", "/proc", "proc", ""},
		// One hierarchy, whatever mixture the system below has.
		{"cgroup", cgroupMount, "cgroup2", ""},
		{"lab", disk, "tmpfs", "mode=755"},
		{"lab", rootOf(dir), "overlay", fmt.Sprintf("lowerdir=/,upperdir=%s/up,workdir=%[1]s/work", disk)},
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.where, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.what, m.where, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("cannot mount %s on %s: %w", m.kind, m.where, err)
		}
		if m.where == disk {
			if err := errors.Join(os.Mkdir(disk+"/up", 0o755), os.Mkdir(disk+"/work", 0o755)); err != nil {
				return err
			}
		}
	}
	// Machines that share a cgroup would share what nspawn makes in it.
	cgroup := cgroupOf(cgroupMount, dir)
	if err := os.Mkdir(cgroup, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte("0"), 0)
}

// cgroupMount is where a keeper has the hierarchy of version 2.
const cgroupMount = "/sys/fs/cgroup"

// attend does what it is told, until there is no one who tells it.
func attend(dir string) error {
	words := bufio.NewScanner(os.Stdin)
	var up atomic.Bool
	for words.Scan() {
		if words.Text() != wordOn || !up.CompareAndSwap(false, true) {
			return fmt.Errorf("a keeper can't do %q now", words.Text())
		}
		go func() {
			status, err := runMachine(dir)
			up.Store(false)
			fmt.Println(wordOff, status, err)
		}()
	}
	return words.Err()
}

// runMachine runs the machine until it is off.
func runMachine(dir string) (int, error) {
	console, err := os.OpenFile(filepath.Join(dir, "console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer console.Close()
	for {
		// Without a unit of its own, registered nowhere: the system below may have no systemd.
		cmd := exec.Command("systemd-nspawn", "--quiet", "--boot", "--directory="+rootOf(dir), "--machine=lab",
			"--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--settings=no",
			"--resolv-conf=off", "--timezone=off", "--console=read-only")
		cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1")
		cmd.Stdout, cmd.Stderr = console, console
		if err := cmd.Start(); err != nil {
			return 0, fmt.Errorf("cannot start the machine: %w", err)
		}
		status, err := reapUntil(cmd.Process.Pid)
		if err != nil || status != rebootStatus {
			return status, err
		}
		fmt.Println(wordRebooted)
	}
}

// reapUntil reaps whatever ends, as a first process has to, until pid has.
func reapUntil(pid int) (int, error) {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}

// raze ends everything and leaves nothing.
func raze(dir string) error {
	_ = unix.Kill(-1, unix.SIGKILL) // all but us; nobody is as good
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			break
		}
	}
	err := errors.Join(
		unix.Unmount(rootOf(dir), unix.MNT_DETACH),
		unix.Unmount(filepath.Join(dir, "disk"), unix.MNT_DETACH),
		os.WriteFile(filepath.Join(cgroupMount, "cgroup.procs"), []byte("0"), 0),
	)
	return errors.Join(err, removeCgroups(cgroupMount, dir), removeDir(dir))
}

// removeDir removes a machine's directory, with nothing mounted in it any more. It
// never removes what it doesn't know.
func removeDir(dir string) error {
	for _, name := range []string{"disk", "console.log", "keeper.log", "lock", "."} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeCgroups removes the machine's cgroups, the innermost first.
func removeCgroups(mounted, dir string) error {
	var all []string
	err := filepath.WalkDir(cgroupOf(mounted, dir), func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return nil // what is gone need not be removed
	})
	for _, path := range slices.Backward(all) {
		if rmErr := removeCgroup(path); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}

// removeCgroup waits for the kernel, which takes the dead out of a cgroup a moment after they were reaped.
func removeCgroup(path string) error {
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Rmdir(path)
		if err != unix.EBUSY {
			return err
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("cannot remove %s: %w", path, err)
		case <-tick.C:
		}
	}
}

// sweep removes what killed runs left: their directories and cgroups; everything
// else has ended with their keepers. A machine's directory is locked as long as anyone has to do with it.
func sweep(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, dirPattern))
	if err != nil {
		return err
	}
	mounted, err := mountedCgroups()
	for _, dir := range dirs {
		lock, openErr := os.Open(filepath.Join(dir, "lock"))
		if openErr != nil {
			continue // it is being made, or removed
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = errors.Join(err, removeCgroups(mounted, dir), removeDir(dir))
		}
		lock.Close()
	}
	return err
}

// mountedCgroups is where the hierarchy of version 2 is mounted on this system, "" for nowhere.
func mountedCgroups() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", nil
}
