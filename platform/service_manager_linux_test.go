package platform

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeManager is a directory in which a script plays systemd's tools.
type fakeManager struct {
	t    *testing.T
	dir  string
	host serviceHost
}

// newFakeManager puts the script before the real tools, so that no test of it is parallel.
func newFakeManager(t *testing.T) fakeManager {
	t.Helper()
	script, err := filepath.Abs("testdata/systemctl.sh")
	if err != nil {
		t.Fatal(err)
	}
	m := fakeManager{t: t, dir: filepath.Join(t.TempDir(), "a manager")}
	for _, dir := range []string{"bin", "linger", "home", "runtime", "usr/systemd/user"} {
		if err := os.MkdirAll(m.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tool := range []string{"systemctl", "loginctl", "journalctl"} {
		if err := os.Symlink(script, m.path("bin/"+tool)); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range map[string]string{
		"PATH": m.path("bin") + ":" + os.Getenv("PATH"), "FAKE_MANAGER": m.dir, "NOTIFY_SOCKET": "/run/mine",
		"HOME": m.path("home"), "XDG_CONFIG_HOME": m.path("home/elsewhere"), "XDG_CONFIG_DIRS": m.path("etc"),
		"XDG_STATE_HOME": m.path("home/state"), "XDG_RUNTIME_DIR": m.path("runtime"),
	} {
		t.Setenv(k, v)
	}
	m.host = serviceHost{
		uid: 7, name: "alice", booted: m.path("bin"), system: m.path("nosystem"), lingering: m.path("linger"), runtime: m.path("run"),
		getenv: os.Getenv,
		lookupUser: func(_ context.Context, name string) (account, error) {
			switch name {
			case "alice":
				return account{"alice", "7", m.path("home")}, nil
			case "root":
				return account{"root", "0", "/root"}, nil
			}
			return account{}, errors.New("there is no user " + name)
		},
	}
	return m
}

func (m fakeManager) path(name string) string { return filepath.Join(m.dir, name) }

func (m fakeManager) unit() string { return m.path("config/systemd/user/intermission.service") }

func (m fakeManager) write(name, content string) {
	m.t.Helper()
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m fakeManager) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(b)
}

// done gives what the tools were told since the last call, but for questions.
func (m fakeManager) done() string {
	m.t.Helper()
	log := strings.Join(strings.Fields(m.read(m.path("log"))), " ")
	if err := os.Remove(m.path("log")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return log
}

// tree is all that an installation may touch, with its content.
func (m fakeManager) tree() map[string]string {
	m.t.Helper()
	tree := map[string]string{}
	for _, top := range []string{"config", "linger", "usr", "home", "loaded"} {
		err := filepath.WalkDir(m.path(top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.Type() == fs.ModeSymlink:
				tree[path], err = os.Readlink(path)
			case d.IsDir():
				tree[path] = "directory"
			default:
				tree[path] = m.read(path)
			}
			return err
		})
		if err != nil {
			m.t.Fatal(err)
		}
	}
	return tree
}

func (m fakeManager) install(s Service, o ServiceOptions) ServiceReport {
	m.t.Helper()
	report, err := m.host.install(m.t.Context(), s, o)
	if err != nil {
		m.t.Fatal(err)
	}
	return report
}

func (m fakeManager) status(s Service) ServiceStatus {
	m.t.Helper()
	_, st, err := m.host.installed(m.t.Context(), s)
	if err != nil {
		m.t.Fatal(err)
	}
	return st
}

func testService() Service { return SupervisorService("/usr/bin/intermission", "1.2.3") }
