//go:build unix

package platform

import (
	"context"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyLimit bounds a message to the manager: one that doesn't read must not hold us up.
const notifyLimit = time.Second

// underManager ends the context at SIGTERM: systemd and launchd both say so that we are to end.
func underManager(ctx context.Context, name string, run func(context.Context, *ServiceManager) error) error {
	m := managerOf(name, os.Getenv, os.Getpid(), os.Getppid())
	forgetManager()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	return run(ctx, m)
}

// managerOf finds who has started this process. The variables are inherited by all
// that a service starts (a desktop's terminals have some), so that they count only
// where the manager named this very process.
func managerOf(name string, getenv func(string) string, pid, parent int) *ServiceManager {
	m := &ServiceManager{}
	if socket := getenv("NOTIFY_SOCKET"); socket != "" {
		named := getenv("SYSTEMD_EXEC_PID") // systemd 248
		if named == "" {
			named = getenv("WATCHDOG_PID")
		}
		if named != "" && named != strconv.Itoa(pid) {
			return nil
		}
		m.restarts = named != ""
		// Its error is a value that is no number, and then there is no watchdog.
		m.watchdog, _ = daemon.SdWatchdogEnabled(false)
		m.tell = func(state string, d time.Duration) { tellSystemd(socket, systemdState(state, d)) }
		return m
	}
	label := getenv("XPC_SERVICE_NAME") // launchd; programs that it opens have others
	if parent == 1 && (label == name || strings.HasSuffix(label, "."+name)) {
		m.restarts = true
		return m
	}
	return nil
}

// forgetManager removes what the manager told us. The server inherits our
// environment, and would answer for us.
func forgetManager() {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if IsManagerVariable(name) {
			_ = os.Unsetenv(name)
		}
	}
}

// systemdState words a message by sd_notify(3); "" says nothing.
func systemdState(state string, d time.Duration) string {
	extend := ""
	if d > 0 {
		extend = "EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10)
	}
	switch state {
	case managerReady:
		return daemon.SdNotifyReady
	case managerAlive:
		return daemon.SdNotifyWatchdog
	case managerStarting:
		return extend
	case managerStopping:
		return strings.TrimSuffix(daemon.SdNotifyStopping+"\n"+extend, "\n")
	}
	if line, ok := strings.CutPrefix(state, managerStatus); ok {
		return "STATUS=" + strings.Join(strings.Fields(strings.ToValidUTF8(line, "")), " ")
	}
	return ""
}

// tellSystemd sends one message. daemon.SdNotify takes the socket from the environment
// each time, where it must not stay, and knows no time limit. What can't be sent is
// lost: without a watchdog's sign the manager restarts us, which is what is wanted.
func tellSystemd(socket, message string) {
	if message == "" {
		return
	}
	// Go takes a leading @ as systemd writes it: a socket of the abstract namespace.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyLimit)); err == nil {
		_, _ = conn.Write([]byte(message))
	}
}
