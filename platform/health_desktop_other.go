//go:build !linux

package platform

import "context"

// lookAtTray: the system itself shows icons.
func lookAtTray(context.Context) (TrayLook, error) { return TrayLook{Watcher: true, Host: true}, nil }

func lookAtNotifications(context.Context) (NotificationsLook, error) {
	return NotificationsLook{Server: "the system"}, nil
}
