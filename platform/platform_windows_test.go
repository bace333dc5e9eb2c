package platform

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindPaths(t *testing.T) {
	env := map[string]string{"APPDATA": `C:\Users\u\AppData\Roaming`, "LOCALAPPDATA": `C:\Users\u\AppData\Local`}
	get := func(k string) string { return env[k] }
	p, err := FindPaths(get)
	if err != nil {
		t.Fatal(err)
	}
	if p.ConfigFile != `C:\Users\u\AppData\Roaming\intermission\config.toml` || p.Ledger != `C:\Users\u\AppData\Local\intermission\ledger.db` {
		t.Errorf("%+v", p)
	}
	if !strings.HasPrefix(p.Socket, `\\.\pipe\intermission-`) {
		t.Errorf("socket %s", p.Socket)
	}
	env[envState] = `D:\state`
	if other, err := FindPaths(get); err != nil || other.Socket == p.Socket || other.Log != `D:\state\log` {
		t.Errorf("%+v, %v", other, err)
	}
	env[envState] = `state`
	if _, err := FindPaths(get); err == nil {
		t.Error("a relative override was taken")
	}
}

func TestServerPipe(t *testing.T) {
	// printf '%s' 'c:\users\u\service.json.lock' | sha256sum
	const want = `\\.\pipe\opencode-process-lock-1a7422615849465ff6b532d439f90f4a104ffa0506af965c55eb914971469d51`
	if got, err := serverPipe(`C:\Users\U\service.json.lock`); err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
}

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	server, err := TryServerLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryServerLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("second: %v", err)
	}
	data, err := TryLockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLockDir(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second: %v", err)
	}
	if err := errors.Join(server.Unlock(), data.Unlock()); err != nil {
		t.Fatal(err)
	}
	server, err = WaitServerLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestIdentity(t *testing.T) {
	self, err := Identify(os.Getpid())
	if err != nil || !self.Alive() {
		t.Fatalf("%+v, %v", self, err)
	}
	self.Start = "1"
	if err := self.Signal(Kill); !errors.Is(err, ErrNoProcess) {
		t.Errorf("another identity: %v", err)
	}
}

func TestListenAndDial(t *testing.T) {
	p, err := FindPaths(func(k string) string { return map[string]string{envConfig: `C:\c`, envState: t.TempDir()}[k] })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), p.Socket); !errors.Is(err, ErrNoListener) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := Listen(p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	c, err := Dial(t.Context(), p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	_ = c.Close()
}
