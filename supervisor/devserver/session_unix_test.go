//go:build unix

package devserver

import "syscall"

// ownSession starts a server as its supervisor does: out of reach of our terminal.
var ownSession = &syscall.SysProcAttr{Setsid: true}
