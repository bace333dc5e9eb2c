package platform

import (
	"errors"
	"slices"
	"strings"
)

// ErrLoginFiles says that the login shell answers only where it reads no login files:
// they end it, or start another program. What it says then is less than a login has.
var ErrLoginFiles = errors.New("its login files keep it from answering")

// managerVariables are the service manager's protocol with the one process that it
// started, and what it says of that process. To a child they are wrong, or worse: one
// that answers on NOTIFY_SOCKET would be taken for us. systemd: systemd.exec(5), sd_notify(3),
// sd_listen_fds(3); launchd: XPC_*. A name that ends with * is a beginning.
var managerVariables = []string{
	"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
	"LISTEN_PID", "LISTEN_PIDFDID", "LISTEN_FDS", "LISTEN_FDNAMES", "FDSTORE",
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "SYSTEMD_ACTIVATION_*", "MAINPID", "MANAGERPID", "MANAGERPIDFDID",
	"MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "LOG_NAMESPACE", "CREDENTIALS_DIRECTORY",
	"XPC_*",
}

// IsManagerVariable tells whether the variable is between a service manager and the
// process that it has started, and so not for that process's children.
func IsManagerVariable(name string) bool {
	return slices.ContainsFunc(managerVariables, func(known string) bool {
		beginning, open := strings.CutSuffix(known, "*")
		return name == known || open && strings.HasPrefix(name, beginning)
	})
}
