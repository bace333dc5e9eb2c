//go:build linux

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sandbox is one user on one machine: a fresh home, with directories of its own
// for configuration, state, data and sockets. Whatever is started in it carries
// its HOME in the environment, by which every leftover is found and ended.
type sandbox struct {
	root string
	env  []string
}

func newSandbox(t testing.TB) *sandbox { t.Helper(); return newSandboxIn(t, "") }

// newSandboxIn makes it in a directory, "" for the usual one.
func newSandboxIn(t testing.TB, dir string) *sandbox {
	t.Helper()
	// Not t.TempDir: with the name of a test in it, a socket's path is too long (108 bytes).
	root, err := os.MkdirTemp(dir, "im")
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{root: root}
	for _, dir := range []string{"home", "config", "state", "data", "cache", "run", "tmp"} {
		if err := os.Mkdir(s.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.env = []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "SHELL=/bin/sh", "NO_COLOR=1",
		"HOME=" + s.path("home"), "TMPDIR=" + s.path("tmp"),
		"XDG_CONFIG_HOME=" + s.path("config"), "XDG_STATE_HOME=" + s.path("state"),
		"XDG_DATA_HOME=" + s.path("data"), "XDG_CACHE_HOME=" + s.path("cache"), "XDG_RUNTIME_DIR=" + s.path("run"),
		"DBUS_SYSTEM_BUS_ADDRESS=unix:path=" + s.path("nobus"), // what this machine does is no part of it
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.dumpLogs(t)
		}
		s.endAll(t)
		if err := os.RemoveAll(root); err != nil {
			t.Logf("cannot remove %s: %v", root, err)
		}
	})
	return s
}

func (s *sandbox) path(elem ...string) string {
	return filepath.Join(append([]string{s.root}, elem...)...)
}

// write puts a file of the user's into the sandbox.
func (s *sandbox) write(t testing.TB, text string, elem ...string) {
	t.Helper()
	name := s.path(elem...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// project makes a directory for a session to work in.
func (s *sandbox) project(t testing.TB, name string) string {
	t.Helper()
	dir := s.path("home", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// result is how a command ended.
type result struct {
	exit   int
	stdout string
	stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\n%s%s", r.exit, r.stdout, r.stderr)
}

// exec runs a program to its end, with no terminal and nothing on standard input.
func (s *sandbox) exec(t testing.TB, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.path("home"), s.env, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Errorf("cannot run %s %q: %v", name, args, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// process is a child of the test that runs until it is ended.
type process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has been reaped
}

// start starts a child in a session of its own, its output in a file.
func (s *sandbox) start(t testing.TB, env []string, name string, args ...string) *process {
	t.Helper()
	out, err := os.CreateTemp(s.root, filepath.Base(name)+"-*.out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &process{log: out.Name(), done: make(chan struct{})}
	p.cmd = exec.Command(name, args...)
	p.cmd.Dir, p.cmd.Env = s.path("home"), append(append([]string{}, s.env...), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("cannot send %v to %d: %v", sig, p.pid(), err)
	}
}

// end signals the child and waits until it is gone.
func (p *process) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	p.signal(t, sig)
	p.wait(t)
}

func (p *process) wait(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("pid %d (%s) lives on after %v", p.pid(), p.cmd, patience)
	}
}

// alive tells whether pid runs. A zombie doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	return !bytes.HasPrefix(rest, []byte(" Z")) && !bytes.HasPrefix(rest, []byte(" X"))
}

// killNow is `kill -9`.
func killNow(t testing.TB, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("refusing to kill pid %d", pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatalf("cannot kill %d: %v", pid, err)
	}
}

// kill is `kill -9`, of a process that needn't be a child, and waits until it is gone.
func kill(t testing.TB, pid int) {
	t.Helper()
	killNow(t, pid)
	eventually(t, fmt.Sprintf("the end of pid %d", pid), func() error {
		if alive(pid) {
			return errors.New("it runs")
		}
		return nil
	})
}

// processes gives the pids that look accepts, by command line and environment.
func processes(look func(cmdline, environ []byte) bool) []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !look(cmdline, environ) {
			continue
		}
		if alive(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// all gives the pids of everything that was started in this sandbox, by whomever.
func (s *sandbox) all() []int {
	home := []byte("HOME=" + s.path("home") + "\x00")
	return processes(func(_, environ []byte) bool { return bytes.Contains(environ, home) })
}

// running gives the pids in this sandbox whose command line holds every word.
func (s *sandbox) running(words ...string) []int {
	home := []byte("HOME=" + s.path("home") + "\x00")
	return processes(func(cmdline, environ []byte) bool {
		for _, w := range words {
			if !bytes.Contains(cmdline, []byte(w)) {
				return false
			}
		}
		return bytes.Contains(environ, home)
	})
}

// endAll ends everything in the sandbox, again and again until nothing comes anew.
func (s *sandbox) endAll(t testing.TB) {
	t.Helper()
	eventually(t, "the end of everything in the sandbox", func() error {
		pids := s.all()
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
		}
		if len(pids) > 0 {
			return fmt.Errorf("pids %v", pids)
		}
		return nil
	})
}

var toolCount atomic.Int64

// toolCommand makes a command that runs long and is found by its argument, unique on this machine.
func toolCommand() string {
	return fmt.Sprintf("sleep 900.%d%04d", os.Getpid(), toolCount.Add(1))
}

// dumpLogs prints the ends of every log in the sandbox, for a test that failed.
func (s *sandbox) dumpLogs(t testing.TB) {
	t.Helper()
	logs, _ := filepath.Glob(s.path("*.out"))
	more, _ := filepath.Glob(s.path("state", "intermission", "log", "*"))
	logs = append(logs, more...)
	sort.Strings(logs)
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil || len(text) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		if len(lines) > 60 {
			lines = lines[len(lines)-60:]
		}
		t.Logf("%s:\n%s", strings.TrimPrefix(name, s.root+"/"), strings.Join(lines, "\n"))
	}
}
