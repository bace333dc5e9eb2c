//go:build unix

package platform

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// socketDir is a private directory whose path is short enough for a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ipc")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

// serve answers each accepted connection with a word, until the listener is closed.
func serve(t *testing.T, l net.Listener) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

// staleSocket leaves a socket behind as a killed listener does.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
	must(t, os.Chmod(path, 0o600))
}

func TestListenAndDial(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "new", "s")
	l, err := Listen(path)
	must(t, err)
	serve(t, l)
	for name, mode := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600} {
		info, err := os.Stat(name)
		must(t, err)
		if info.Mode().Perm() != mode {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	c, err := Dial(t.Context(), path)
	must(t, err)
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, c.Close())

	_, err = Listen(path)
	checkError(t, err, "another process listens there")
	c, err = Dial(t.Context(), path) // the second attempt to listen did no harm
	must(t, err)
	must(t, c.Close())

	must(t, l.Close())
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays after close: %v", err)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNoListener) {
		t.Errorf("dial after close: %v", err)
	}
}

func TestListenOnWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, path string)
		err   string
	}{
		{name: "stale socket", setup: staleSocket},
		{name: "file", err: "is not a socket; remove it", setup: func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("precious"), 0o600))
		}},
		{name: "link to a stale socket", err: "is not a socket", setup: func(t *testing.T, path string) {
			staleSocket(t, path+"2")
			must(t, os.Symlink(path+"2", path))
		}},
		{name: "directory open to others", err: "run: chmod 700", setup: func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(path), 0o777))
		}},
		{name: "another user's socket", err: "and not to you", setup: func(t *testing.T, path string) {
			if asRoot(t) {
				staleSocket(t, path)
				must(t, os.Chown(path, stranger, stranger))
				return
			}
			must(t, os.Chmod(filepath.Dir(path), 0o777)) // the directory is refused first
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			tt.setup(t, path)
			before, _ := os.Lstat(path)
			if tt.name == "another user's socket" && os.Geteuid() != 0 {
				tt.err = "run: chmod 700"
			}
			l, err := Listen(path)
			checkError(t, err, tt.err)
			if err == nil {
				serve(t, l)
				c, err := Dial(t.Context(), path)
				must(t, err)
				must(t, c.Close())
				return
			}
			if after, err := os.Lstat(path); before != nil && (err != nil || !os.SameFile(before, after)) {
				t.Error("what was there is gone")
			}
		})
	}
}

func TestDialRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		setup func(t *testing.T, path string)
		is    error
		err   string
	}{
		{name: "no directory", is: ErrNoListener, setup: func(t *testing.T, path string) { must(t, os.Remove(filepath.Dir(path))) }},
		{name: "no socket", is: ErrNoListener, setup: func(*testing.T, string) {}},
		{name: "stale socket", is: ErrNoListener, setup: staleSocket},
		{name: "file", err: "is not a socket", setup: func(t *testing.T, path string) { must(t, os.WriteFile(path, nil, 0o600)) }},
		{name: "directory open to others", err: "has mode 0777; run: chmod 700 /", setup: func(t *testing.T, path string) {
			staleSocket(t, path)
			must(t, os.Chmod(filepath.Dir(path), 0o777))
		}},
		{name: "directory readable by others", err: "has mode 0755; run: chmod 700 /", setup: func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(path), 0o755))
		}},
		{name: "socket open to others", err: "has mode 0666; run: chmod 600 /", setup: func(t *testing.T, path string) {
			staleSocket(t, path)
			must(t, os.Chmod(path, 0o666))
		}},
		{name: "directory is a link", err: "is a symbolic link", setup: func(t *testing.T, path string) {
			dir := filepath.Dir(path)
			must(t, os.Rename(dir, dir+".real"))
			t.Cleanup(func() { must(t, os.RemoveAll(dir+".real")) })
			must(t, os.Symlink(dir+".real", dir))
		}},
		{name: "another user's directory", err: "and not to you", setup: func(t *testing.T, path string) {
			if asRoot(t) {
				must(t, os.Chown(filepath.Dir(path), stranger, stranger))
			}
		}},
		{name: "another user's socket", err: "and not to you", setup: func(t *testing.T, path string) {
			staleSocket(t, path)
			if asRoot(t) {
				must(t, os.Chown(path, stranger, stranger))
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			tt.setup(t, path)
			if strings.HasPrefix(tt.name, "another user's") && os.Geteuid() != 0 {
				path = "/s" // that directory is root's
			}
			c, err := Dial(t.Context(), path)
			if err == nil {
				_ = c.Close()
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %v", err, tt.is)
			}
			if tt.is == nil {
				checkError(t, err, tt.err)
			}
		})
	}
}

func TestSocketPathTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), strings.Repeat("x", sunPath))
	_, err := Listen(path)
	checkError(t, err, "set INTERMISSION_RUNTIME_DIR to a shorter directory")
	_, err = Dial(t.Context(), path)
	checkError(t, err, "set INTERMISSION_RUNTIME_DIR to a shorter directory")
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	l, err := Listen(path)
	must(t, err)
	serve(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dial(ctx, path)
	checkError(t, err, "canceled")
}

// TestPeersOfAnotherUserAreHungUpOn needs no second user: the listener is made to belong to another.
func TestPeersOfAnotherUserAreHungUpOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	l, err := Listen(path)
	must(t, err)
	l.(*ownListener).uid = stranger
	serve(t, l)
	c, err := net.Dial("unix", path)
	must(t, err)
	if got, err := io.ReadAll(c); err != nil || len(got) != 0 {
		t.Errorf("read %q, %v", got, err)
	}
	must(t, c.Close())
}

// TestAnotherUserCannotConnect opens the directory and the socket wide after they
// were made, so that only the check of the peer is left.
func TestAnotherUserCannotConnect(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	must(t, err)
	serve(t, l)
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(path, 0o666))
	if _, answer := spawn(t, "connect", path); answer != `answer "hello"` {
		t.Errorf("our own process: %s", answer)
	}
	if !asRoot(t) {
		return
	}
	// The test binary lies in a directory that only we can enter.
	exe, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, writeProgram(filepath.Join(dir, "exe"), exe))
	must(t, os.Chmod(filepath.Join(dir, "exe"), 0o755))
	cmd := exec.Command(filepath.Join(dir, "exe"), path)
	cmd.Dir, cmd.Env = dir, []string{roleVariable + "=connect"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if _, answer := spawnCommand(t, cmd); answer != `answer ""` && !strings.Contains(answer, "reset by peer") {
		t.Errorf("another user's process: %s", answer)
	}
}
