package platform

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// session is a connection to the session bus, which ends with the desktop session.
type session struct{ bus *bus }

func openDesktop(ctx context.Context, log *slog.Logger) (*Desktop, error) {
	ctx, cancel := context.WithTimeout(ctx, desktopTimeout)
	defer cancel()
	address, err := busAddress(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDesktop, err)
	}
	b, err := dialBus(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w: the session bus doesn't answer: %w", ErrNoDesktop, err)
	}
	key, err := busKey(ctx, b)
	if err == nil {
		err = os.Setenv("DBUS_SESSION_BUS_ADDRESS", address)
	}
	if err != nil {
		b.close()
		return nil, fmt.Errorf("%w: %w", ErrNoDesktop, err)
	}
	return &Desktop{Key: key, log: log, done: b.Context().Done(), session: session{b}}, nil
}

// busKey is the bus's own identifier: each bus that starts has a new one. The
// specification says 32 hexadecimal digits.
func busKey(ctx context.Context, b *bus) (string, error) {
	var id string
	if err := b.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.GetId", 0).Store(&id); err != nil {
		return "", fmt.Errorf("cannot ask the session bus who it is: %w", err)
	}
	if len(id) != 32 || strings.Trim(id, "0123456789abcdefABCDEF") != "" {
		return "", fmt.Errorf("the session bus gives itself the name %q", id)
	}
	return strings.ToLower(id), nil
}

func (d *Desktop) close() { d.bus.close() }
