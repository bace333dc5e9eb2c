package platform

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrNoDesktop says that there is no desktop session to show anything in.
var ErrNoDesktop = errors.New("no desktop session")

const (
	// desktopTimeout bounds the first answer of the session bus.
	desktopTimeout = 2 * time.Second
	// hostSettles is what a StatusNotifier host that came is given to read what
	// is there, and the tray library to register by itself, before we look.
	hostSettles = time.Second
	// hostPatience is how long a host may take to answer until it counts as hung.
	hostPatience = 3 * time.Second
)

// Desktop is the desktop session that we run in.
type Desktop struct {
	// Key names this session, fit for a file name: two processes with one Key
	// would show their icons in the same place.
	Key string

	log  *slog.Logger
	done <-chan struct{}
	session
}

// OpenDesktop finds the desktop session of this process. On Linux that is its
// session bus, which must answer within 2 s; otherwise the error wraps
// ErrNoDesktop. An address that is found without DBUS_SESSION_BUS_ADDRESS is put
// into that variable of our own environment, for libraries would otherwise start
// a bus of their own.
func OpenDesktop(ctx context.Context, log *slog.Logger) (*Desktop, error) {
	return openDesktop(ctx, log)
}

// Done is closed when the session is gone (logout), and by Close. On Windows and
// macOS it stays open: there the system ends us.
func (d *Desktop) Done() <-chan struct{} { return d.done }

// Close lets the session go. It may be called more than once.
func (d *Desktop) Close() { d.close() }

// KeepRegistered watches over the tray icon until ctx ends or the session is gone;
// the caller runs it in a goroutine. Item is the bus name of the icon
// (org.kde.StatusNotifierItem-PID-1): the tray library registers it once, and
// after some failures never again. Each time a host comes, and each time it drops
// the item, it is looked after a second whether the item is registered, and
// otherwise it's done here. A host that refuses is asked again, after a second at
// first and after a minute at last. One that hangs is not waited for; it is looked at anew when it
// answers. Only Linux has something to watch.
func (d *Desktop) KeepRegistered(ctx context.Context, item string) {
	d.keepRegistered(ctx, item, hostSettles, hostPatience)
}
