package platform

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// desktopKey is the number of the session: one user can have several (remote desktop).
func desktopKey() (string, error) {
	var session uint32
	if err := windows.ProcessIdToSessionId(windows.GetCurrentProcessId(), &session); err != nil {
		return "", fmt.Errorf("%w: cannot tell the Windows session: %w", ErrNoDesktop, err)
	}
	if session == 0 {
		return "", fmt.Errorf("%w: session 0 is for services and has none; start the tray from your own session", ErrNoDesktop)
	}
	return fmt.Sprintf("session-%d", session), nil
}
