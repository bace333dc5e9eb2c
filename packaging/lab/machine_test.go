//go:build linux

package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dirPattern is what the directories of machines are called. One name more is each machine's cgroup.
const dirPattern = "intermission-lab-*"

// machine is a computer with systemd, and one ordinary user on it.
type machine struct {
	dir    string
	keeper *exec.Cmd
	words  io.WriteCloser // to the keeper
	says   chan string    // from the keeper; closed at its end
	leader int            // the pid of its systemd, as it is seen from here; 0 when off
	uid    int            // of the user
	killed bool           // the keeper was, by the test
}

// userName is the ordinary user's.
const userName = "alice"

// home is the user's home directory.
const home = "/home/" + userName

// newMachine boots a machine that ends with the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	requireLab(t)
	dir, err := os.MkdirTemp("", dirPattern)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir, says: make(chan string, 8)}
	// Under its name it is locked already: others sweep what isn't.
	lock, err := os.Create(filepath.Join(dir, "lock.new"))
	if err == nil {
		err = errors.Join(unix.Flock(int(lock.Fd()), unix.LOCK_EX), os.Rename(lock.Name(), filepath.Join(dir, "lock")))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // the keeper has it too, and keeps it
	switch err := m.startKeeper(lock); {
	case errors.Is(err, unix.EPERM): // a root without capabilities, as in most containers
		lock.Close()
		if err := removeDir(dir); err != nil {
			t.Error(err)
		}
		noMachine(t, err.Error())
	case err != nil:
		t.Fatalf("cannot start a keeper: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			m.report(t)
		}
		m.end(t)
	})
	m.hear(t, wordMounted)
	m.furnish(t)
	m.boot(t)
	m.addUser(t)
	return m
}

func (m *machine) startKeeper(lock *os.File) error {
	log, err := os.Create(filepath.Join(m.dir, "keeper.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.keeper = exec.Command(self)
	m.keeper.Env = append(os.Environ(), keeperVariable+"="+m.dir)
	m.keeper.Stderr = log
	m.keeper.ExtraFiles = []*os.File{lock}
	m.keeper.SysProcAttr = &syscall.SysProcAttr{
		Setsid:       true, // an interrupt is for the test, which then lets it end in order
		Cloneflags:   unix.CLONE_NEWPID,
		Unshareflags: unix.CLONE_NEWNS,
	}
	if m.words, err = m.keeper.StdinPipe(); err != nil {
		return err
	}
	out, err := m.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.keeper.Start(); err != nil {
		return err
	}
	go func() {
		defer close(m.says)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			m.says <- lines.Text()
		}
	}()
	return nil
}

// hear waits for a word of the keeper's, and gives what follows it.
func (m *machine) hear(t *testing.T, word string) string {
	t.Helper()
	deadline := time.NewTimer(downLimit)
	defer deadline.Stop()
	select {
	case line, ok := <-m.says:
		if rest, is := strings.CutPrefix(line, word); ok && is {
			return strings.TrimSpace(rest)
		}
		t.Fatalf("the keeper says %q, not %q\n%s%s", line, word, m.read("keeper.log"), m.read("console.log"))
	case <-deadline.C:
		t.Fatalf("the keeper hasn't said %q within %v", word, downLimit)
	}
	return ""
}

// read gives a log of the machine's directory, for a message.
func (m *machine) read(name string) string {
	text, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// end takes the machine away, whatever it does.
func (m *machine) end(t *testing.T) {
	t.Helper()
	m.words.Close()
	for range m.says { // until it is gone
	}
	if err := m.keeper.Wait(); err != nil && !m.killed {
		t.Errorf("the keeper left something: %v", err)
	}
}

// path gives a file of the machine's, by which it is read and written from here,
// also while the machine is off. Nothing that is mounted in the machine is there: no /run, no /tmp.
func (m *machine) path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(m.keeper.Process.Pid), "root", rootOf(m.dir), name)
}

// write puts a file into the machine. It is root's until give.
func (m *machine) write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(m.path(name), mode); err != nil { // whatever the umask, and for a file that was there
		t.Fatal(err)
	}
	if strings.HasPrefix(name, home+"/") {
		m.give(t, name)
	}
}

// give makes the user the owner of a file, and of what leads to it.
func (m *machine) give(t *testing.T, name string) {
	t.Helper()
	for ; name != home; name = filepath.Dir(name) {
		if err := os.Lchown(m.path(name), m.uid, m.uid); err != nil {
			t.Fatal(err)
		}
	}
}

// copyIn copies a program or package into the machine.
func (m *machine) copyIn(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, to, string(content), 0o755)
}

// furnish makes a machine of its own out of the root below: none of the services
// of that one, another identity, a journal that outlives a boot.
func (m *machine) furnish(t *testing.T) {
	t.Helper()
	wants, err := filepath.Glob(m.path("/etc/systemd/system/*.wants"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(wants, m.path("/var/lib/systemd/linger"), m.path("/var/log/journal"), m.path("/.dockerenv")) {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	for _, unit := range []string{"console-getty.service", "systemd-firstboot.service", "systemd-networkd.service",
		"systemd-networkd.socket", "systemd-timesyncd.service", "systemd-resolved.service"} {
		link := m.path("/etc/systemd/system/" + unit)
		_ = os.Remove(link) // it need not be there
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("/dev/null", link)); err != nil {
			t.Fatal(err)
		}
	}
	m.write(t, "/etc/machine-id", "", 0o444)
	m.write(t, "/etc/systemd/journald.conf.d/lab.conf", "[Journal]\nStorage=persistent\nRateLimitIntervalSec=0\n", 0o644)
	// The default of ten seconds between the last logout and the end of the user's manager is long for a test.
	m.write(t, "/etc/systemd/logind.conf.d/lab.conf", "[Login]\nUserStopDelaySec=1\n", 0o644)
}

// boot starts the machine and waits until it is up.
func (m *machine) boot(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(m.words, wordOn+"\n"); err != nil {
		t.Fatal(err)
	}
	m.waitUp(t)
}

func (m *machine) waitUp(t *testing.T) {
	t.Helper()
	m.leader = 0
	eventually(t, "a machine that is up", func() error {
		if m.leader == 0 {
			if m.leader = findLeader(m.keeper.Process.Pid); m.leader == 0 {
				return errors.New("nspawn has started no systemd: " + m.read("console.log"))
			}
		}
		r := m.root("systemctl", "is-system-running")
		switch state := strings.TrimSpace(r.stdout); state {
		case "running", "degraded": // what fails here of the root below is not ours
			return nil
		default:
			return errors.New(r.String())
		}
	})
}

// findLeader gives the first process of the machine that keeper keeps: a systemd
// that is pid 1, and child of a child of the keeper's.
func findLeader(keeper int) int {
	for _, nspawn := range childrenOf(keeper) {
		for _, pid := range childrenOf(nspawn) {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(status)) {
				pids, is := strings.CutPrefix(line, "NSpid:")
				if f := strings.Fields(pids); is && len(f) > 2 && f[len(f)-1] == "1" && bytes.HasPrefix(status, []byte("Name:\tsystemd\n")) {
					return pid
				}
			}
		}
	}
	return 0
}

func childrenOf(parent int) []int {
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// downLimit is how long a machine may take to go down: systemd's own limit for all
// services of a user is 120 s, and nothing here may need it.
const downLimit = 60 * time.Second

// reboot has the machine reboot, as its administrator does, and waits until it is up again.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	if r := m.root("systemctl", "reboot"); r.exit != 0 {
		t.Fatalf("reboot: %v", r)
	}
	m.hear(t, wordRebooted)
	m.waitUp(t)
}

// poweroff has the machine power off, waits until it is off, and tells how long it took.
func (m *machine) poweroff(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	if r := m.root("systemctl", "poweroff"); r.exit != 0 {
		t.Fatalf("poweroff: %v", r)
	}
	m.hear(t, wordOff)
	m.leader = 0
	return time.Since(began)
}

// result is how a command ended.
type result struct {
	exit   int
	stdout string
	stderr string
}

func (r result) String() string { return fmt.Sprintf("exit %d\n%s%s", r.exit, r.stdout, r.stderr) }

// searched is the PATH of commands that no login shell has started.
const searched = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// root runs a command as root.
func (m *machine) root(argv ...string) result {
	return m.enter(0, []string{searched, "LANG=C.UTF-8", "HOME=/root", "USER=root", "SYSTEMD_PAGER="}, argv...)
}

// user runs a command as the user, with what leads to the user's manager and without a session.
func (m *machine) user(argv ...string) result {
	return m.enter(m.uid, []string{searched, "LANG=C.UTF-8", "HOME=" + home, "USER=" + userName, "SHELL=/bin/bash", "SYSTEMD_PAGER=",
		fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", m.uid)}, argv...)
}

// withoutLogin runs a command as the user and as su does: nothing leads to the user's manager.
func (m *machine) withoutLogin(argv ...string) result {
	return m.enter(m.uid, []string{searched, "HOME=" + home, "USER=" + userName, "SHELL=/bin/bash"}, argv...)
}

// enter runs a command in the machine's namespaces.
func (m *machine) enter(uid int, env []string, argv ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := m.entering(ctx, uid, argv...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil || ctx.Err() != nil {
		fmt.Fprintf(&stderr, "cannot run %q: %v", argv, errors.Join(err, ctx.Err()))
		return result{-1, stdout.String(), stderr.String()}
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func (m *machine) entering(ctx context.Context, uid int, argv ...string) *exec.Cmd {
	args := []string{"--target", strconv.Itoa(m.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
		"--setuid", strconv.Itoa(uid), "--setgid", strconv.Itoa(uid), "--wd=/", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(args, argv...)...)
	cmd.WaitDelay = time.Second // a pipe may have been inherited
	return cmd
}

// must runs a command as root that has to succeed, and gives what it prints.
func (m *machine) must(t *testing.T, argv ...string) string {
	t.Helper()
	r := m.root(argv...)
	if r.exit != 0 {
		t.Fatalf("%q: %v", argv, r)
	}
	return strings.TrimSpace(r.stdout)
}

// report prints what a failed test is understood by.
func (m *machine) report(t *testing.T) {
	t.Helper()
	if m.leader != 0 {
		t.Logf("journal:\n%s", tail(m.root("journalctl", "--no-pager", "-o", "short-precise", "--no-hostname", "-n", "300").stdout, 300))
		t.Logf("processes:\n%s", m.root("ps", "-u", userName, "-o", "pid,ppid,unit,stat,args").stdout)
	}
	for _, name := range []string{home + "/.local/state/intermission/log/intermission.log", "/root/.local/state/intermission/log/intermission.log"} {
		if text, err := os.ReadFile(m.path(name)); err == nil {
			t.Logf("%s:\n%s", name, tail(string(text), 80))
		}
	}
	if text := m.read("keeper.log"); text != "" {
		t.Logf("keeper:\n%s", text)
	}
}

// tail gives the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
