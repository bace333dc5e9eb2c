package platform

import "context"

// TrayLook is what there is to show a tray icon.
type TrayLook struct {
	Watcher bool // something takes icons
	Host    bool // something shows them
}

// LookAtTray tells whether the desktop shows tray icons, and starts nothing for it.
// ErrNoDesktop where there is no desktop session.
func LookAtTray(ctx context.Context) (TrayLook, error) { return lookAtTray(ctx) }

// NotificationsLook is what there is to show notifications.
type NotificationsLook struct {
	Server    string   // name and version; "" when none runs
	Can       []string // its capabilities
	Startable bool     // none runs, but the session bus starts one when it is needed
}

// LookAtNotifications tells what would show a notification. It sends none, and
// starts nothing. ErrNoDesktop where there is no desktop session.
func LookAtNotifications(ctx context.Context) (NotificationsLook, error) {
	return lookAtNotifications(ctx)
}
