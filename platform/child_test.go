//go:build unix

package platform

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary starts itself again as the processes that the tests need.
const roleVariable = "INTERMISSION_TEST_ROLE"

// roles are what a child can be. Each says a line when it is ready; most go on until their input ends.
var roles = map[string]func(args []string) error{
	"block":      roleBlock,
	"exit":       roleExit,
	"ignoreterm": roleIgnoreTerm,
	"named":      roleNamed,
	"report":     roleReport,
	"family":     roleFamily,
	"orphaner":   roleOrphaner,
	"flock":      roleFlock,
	"trylock":    roleTryLock,
	"umask":      roleUmask,
	"connect":    roleConnect,
}

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// block waits until the input ends; with no input it waits to be killed, but not
// for ever, for the test that should do so may have been killed itself.
func block() error {
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGUSR1)
		select {
		case <-signals:
		case <-time.After(6 * patience):
		}
		return nil
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

func roleBlock([]string) error {
	fmt.Println("ready")
	return block()
}

func roleExit(args []string) error {
	code, err := strconv.Atoi(args[0])
	if err == nil {
		os.Exit(code)
	}
	return err
}

func roleIgnoreTerm([]string) error {
	signal.Ignore(syscall.SIGTERM)
	return roleBlock(nil)
}

// roleNamed gives itself a name that looks like the rest of its status line.
func roleNamed(args []string) error {
	if err := os.WriteFile("/proc/self/comm", []byte(args[0]), 0); err != nil {
		return err
	}
	return roleBlock(nil)
}

// roleReport says what it was given.
func roleReport(args []string) error {
	sid, err := unix.Getsid(0)
	if err != nil {
		return err
	}
	stdin, err := os.Readlink("/proc/self/fd/0")
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	var inherited []string
	for _, fd := range args { // descriptors that must not be here
		if _, err := os.Stat("/proc/self/fd/" + fd); err == nil {
			inherited = append(inherited, fd)
		}
	}
	fmt.Printf("leader=%t stdin=%s dir=%s env=%s inherited=%v\n", sid == os.Getpid(), stdin, dir,
		strings.Join(os.Environ(), ","), inherited)
	fmt.Fprintln(os.Stderr, "to standard error")
	return nil
}

// roleFamily starts a child that ignores TERM and an orphan in a session of its own.
func roleFamily([]string) error {
	child, err := startRole("ignoreterm", nil)
	if err != nil {
		return err
	}
	// The orphaner ends when the orphan is up, so that the orphan has lost this parent.
	out, err := roleCommand(exec.Command, "orphaner").Output()
	if err != nil {
		return err
	}
	fmt.Printf("%d %s", child, out)
	return block()
}

func roleOrphaner([]string) error {
	pid, err := startRole("ignoreterm", &syscall.SysProcAttr{Setsid: true})
	if err == nil {
		fmt.Println(pid)
	}
	return err
}

// startRole starts a role without input, and returns when it is ready.
func startRole(role string, attr *syscall.SysProcAttr) (int, error) {
	cmd := roleCommand(exec.Command, role)
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return cmd.Process.Pid, err
}

// roleFlock locks a file by the bare system call, as a server does.
func roleFlock(args []string) error {
	f, err := os.OpenFile(args[0], os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		fmt.Println("held")
		return nil
	case err != nil:
		return err
	}
	return roleBlock(nil)
}

func roleTryLock(args []string) error {
	l, err := TryLock(args[0])
	if err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("granted")
	}
	_ = block()
	if l != nil {
		return l.Unlock()
	}
	return nil
}

// roleUmask makes one of each under a umask and tells their modes.
func roleUmask(args []string) error {
	mask, err := strconv.ParseInt(args[1], 8, 32)
	if err != nil {
		return err
	}
	unix.Umask(int(mask))
	dir := filepath.Join(args[0], "parent", "private")
	if err := EnsurePrivateDir(dir); err != nil {
		return err
	}
	if err := WriteFileAtomic(filepath.Join(dir, "file"), nil); err != nil {
		return err
	}
	l, err := Listen(filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	for _, p := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "file"), filepath.Join(dir, "s")} {
		info, err := os.Stat(p)
		if err != nil {
			return err
		}
		fmt.Printf("%o ", info.Mode().Perm())
	}
	fmt.Println()
	return nil
}

// roleConnect connects without any check of ours, and tells whether the other side answers or hangs up.
func roleConnect(args []string) error {
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	b, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	fmt.Printf("answer %q\n", b)
	return nil
}

func roleCommand(command func(string, ...string) *exec.Cmd, role string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	cmd := command(exe, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	return cmd
}

// child is a role that runs.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// spawn starts a role and waits for its line. It is killed at the end of the test.
func spawn(t *testing.T, role string, args ...string) (*child, string) {
	t.Helper()
	return spawnCommand(t, roleCommand(exec.Command, role, args...))
}

func spawnCommand(t *testing.T, cmd *exec.Cmd) (*child, string) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, stdin, bufio.NewReader(stdout)}
	t.Cleanup(c.kill)
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child %q said %q and then: %v", cmd.Args, line, err)
	}
	return c, strings.TrimSpace(line)
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the child and reaps it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// finish lets the child end by itself.
func (c *child) finish() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait()
}

func (c *child) identity(t *testing.T) Identity {
	t.Helper()
	return identityOfPID(t, c.pid())
}

func identityOfPID(t *testing.T, pid int) Identity {
	t.Helper()
	id, err := Identify(pid)
	if err != nil {
		t.Fatalf("Identify(%d): %v", pid, err)
	}
	return id
}

// patience bounds what a test waits for; it is never waited for in full when all is well.
const patience = 20 * time.Second

// eventually looks again until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// closedSoon waits for a channel to be closed.
func closedSoon(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// stranger is a user other than the one who runs the tests (nobody on Debian).
const stranger = 65534

// asRoot tells whether the part that needs another user can run. In CI it must.
func asRoot(t *testing.T) bool {
	t.Helper()
	root := os.Geteuid() == 0
	if !root && os.Getenv("CI") != "" {
		t.Fatal("this test needs a second user: run it as root")
	}
	return root
}
