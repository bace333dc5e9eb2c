package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// bus is a connection to the session bus that nobody shares. The one that godbus
// shares is systray's: signals that we would subscribe to there make systray stop
// listening.
type bus struct {
	*dbus.Conn
	raw *net.UnixConn
}

// busAddress is where the session bus listens. Unlike godbus it never starts one.
func busAddress(getenv func(string) string) (string, error) {
	if a := getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" && !strings.HasPrefix(a, "autolaunch:") {
		return a, nil
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		socket := filepath.Join(dir, "bus")
		if info, err := os.Stat(socket); err == nil && info.Mode().Type() == os.ModeSocket {
			return "unix:path=" + dbus.EscapeBusAddressValue(socket), nil
		}
	}
	return "", errors.New("DBUS_SESSION_BUS_ADDRESS isn't set and there is no bus in XDG_RUNTIME_DIR")
}

// dialBus connects and says hello, until ctx ends.
func dialBus(ctx context.Context, address string) (*bus, error) {
	raw, err := dialBusSocket(ctx, address)
	if err != nil {
		return nil, err
	}
	// Signals in their order: an action comes before the end of its notification.
	conn, err := dbus.DialUnix(raw, dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	b := &bus{conn, raw}
	err = b.within(ctx, func() error {
		if err := b.Auth(nil); err != nil {
			return err
		}
		return b.Hello()
	})
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// dialBusSocket tries the addresses in turn (D-Bus specification, "Server
// addresses"). A session bus listens on a Unix socket; others aren't taken.
func dialBusSocket(ctx context.Context, address string) (*net.UnixConn, error) {
	err := fmt.Errorf("the bus address %q names no Unix socket", address)
	for one := range strings.SplitSeq(address, ";") {
		transport, keys, _ := strings.Cut(one, ":")
		if transport != "unix" {
			continue
		}
		for pair := range strings.SplitSeq(keys, ",") {
			key, escaped, _ := strings.Cut(pair, "=")
			name, cannot := dbus.UnescapeBusAddressValue(escaped)
			if cannot != nil || key != "path" && key != "abstract" {
				continue
			}
			if key == "abstract" {
				name = "@" + name
			}
			c, cannot := new(net.Dialer).DialContext(ctx, "unix", name)
			if cannot != nil {
				err = cannot
				continue
			}
			if u, ok := c.(*net.UnixConn); ok {
				return u, nil
			}
			_ = c.Close()
		}
	}
	return nil, err
}

// within makes calls on the connection that know no time limit. When ctx ends
// before f does, the connection is closed, which ends f and leaves nothing behind.
func (b *bus) within(ctx context.Context, f func() error) error {
	stop := context.AfterFunc(ctx, b.close)
	err := f()
	if !stop() {
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	}
	return err
}

// close may be called more than once. The socket goes first: godbus waits in its
// Close for a message that is being written.
func (b *bus) close() {
	_ = b.raw.Close()
	_ = b.Close()
}
