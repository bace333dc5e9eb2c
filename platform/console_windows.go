package platform

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	procConsolePeers = kernel32.NewProc("GetConsoleProcessList")
	procShowWindow   = windows.NewLazySystemDLL("user32.dll").NewProc("ShowWindow")
)

func hideConsole() {
	if !consoleIsOurs() {
		return
	}
	if window, _, _ := procGetConsole.Call(); window != 0 {
		_, _, _ = procShowWindow.Call(window, windows.SW_HIDE)
	}
}

// consoleIsOurs tells whether nobody else is attached to our console: it was made
// for us, and isn't the one of a shell that we were called in. There is room for two,
// which is all that is asked; without a console the number is 0.
func consoleIsOurs() bool {
	var pids [2]uint32
	n, _, _ := procConsolePeers.Call(uintptr(unsafe.Pointer(&pids[0])), uintptr(len(pids)))
	return n == 1
}
