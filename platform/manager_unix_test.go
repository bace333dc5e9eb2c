//go:build unix

package platform

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// notifySocket listens as systemd does, and gives what it hears.
func notifySocket(t *testing.T, name string) func() string {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func() string {
		t.Helper()
		buffer := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
}

func TestUnderManagerTellsSystemd(t *testing.T) {
	names := map[string]string{"path": filepath.Join(t.TempDir(), "notify")}
	if runtime.GOOS == "linux" {
		names["abstract"] = "@intermission-test-" + strconv.Itoa(os.Getpid())
	}
	for kind, name := range names {
		t.Run(kind, func(t *testing.T) {
			heard := notifySocket(t, name)
			pid := strconv.Itoa(os.Getpid())
			for k, v := range map[string]string{
				"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": pid, "SYSTEMD_EXEC_PID": pid,
				"INVOCATION_ID": "x", "JOURNAL_STREAM": "8:1", "LISTEN_FDS": "1", "LISTEN_PID": pid, "MANAGERPID": "1", "KEPT": "1",
			} {
				t.Setenv(k, v)
			}
			want := errors.New("its own")
			err := UnderManager(t.Context(), "intermission", func(ctx context.Context, m *ServiceManager) error {
				if !m.Restarts() || m.Watchdog() != 30*time.Second {
					t.Errorf("restarts %t, watchdog %s", m.Restarts(), m.Watchdog())
				}
				for _, left := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "SYSTEMD_EXEC_PID",
					"INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "MANAGERPID"} {
					if v, there := os.LookupEnv(left); there {
						t.Errorf("%s=%s is left for the server", left, v)
					}
				}
				if os.Getenv("KEPT") != "1" {
					t.Error("a variable that isn't the manager's was removed")
				}
				for _, c := range []struct {
					say  func()
					want string
				}{
					{func() { m.Starting(90 * time.Second) }, "EXTEND_TIMEOUT_USEC=90000000"},
					{m.Ready, "READY=1"},
					{m.Alive, "WATCHDOG=1"},
					{func() { m.Status("running,\n 2 sessions\tpending\nREADY=0\xff") }, "STATUS=running, 2 sessions pending READY=0"},
					{func() { m.Stopping(1500 * time.Millisecond) }, "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000"},
					{func() { m.Stopping(0) }, "STOPPING=1"},
				} {
					c.say()
					if diff := cmp.Diff(c.want, heard()); diff != "" {
						t.Errorf("-want +got:\n%s", diff)
					}
				}
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					t.Error(err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(patience):
					t.Error("SIGTERM doesn't end the context")
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Errorf("got the error %v", err)
			}
		})
	}
}

func TestManagerOf(t *testing.T) {
	for name, c := range map[string]struct {
		env            map[string]string
		parent         int
		none, restarts bool
	}{
		"a terminal":                {none: true},
		"a service's child":         {env: map[string]string{"NOTIFY_SOCKET": "/n", "SYSTEMD_EXEC_PID": "6", "WATCHDOG_PID": "7"}, none: true},
		"a desktop's child":         {env: map[string]string{"INVOCATION_ID": "x", "SYSTEMD_EXEC_PID": "7"}, none: true},
		"systemd":                   {env: map[string]string{"NOTIFY_SOCKET": "/n", "SYSTEMD_EXEC_PID": "7"}, restarts: true},
		"systemd before 248":        {env: map[string]string{"NOTIFY_SOCKET": "/n", "WATCHDOG_PID": "7"}, restarts: true},
		"old systemd's grandchild":  {env: map[string]string{"NOTIFY_SOCKET": "/n", "WATCHDOG_PID": "6"}, none: true},
		"a container with a socket": {env: map[string]string{"NOTIFY_SOCKET": "/n"}},
		"launchd":                   {env: map[string]string{"XPC_SERVICE_NAME": "org.intermission.intermission"}, parent: 1, restarts: true},
		"a Mac's terminal":          {env: map[string]string{"XPC_SERVICE_NAME": "application.com.apple.Terminal.1"}, parent: 1, none: true},
		"launchd's grandchild":      {env: map[string]string{"XPC_SERVICE_NAME": "org.intermission.intermission"}, parent: 9, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := managerOf("intermission", func(k string) string { return c.env[k] }, 7, c.parent)
			if (m == nil) != c.none || m.Restarts() != c.restarts {
				t.Errorf("got %+v", m)
			}
			m.Ready() // a socket that isn't there, or no manager, is no fault
		})
	}
}

func TestManagerThatDoesntRead(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "notify")
	_ = notifySocket(t, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// More than its buffers hold (net.unix.max_dgram_qlen, its receive buffer).
		for range 3 {
			tellSystemd(name, "STATUS="+strings.Repeat("x", 100<<10))
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("a manager that doesn't read holds us up")
	}
}
