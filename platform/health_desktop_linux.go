package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/godbus/dbus/v5"
)

const sessionBusName = "org.freedesktop.DBus"

// onSessionBus asks the session bus something.
func onSessionBus(ctx context.Context, ask func(*bus) error) error {
	address, err := busAddress(os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDesktop, err)
	}
	b, err := dialBus(ctx, address)
	if err != nil {
		return fmt.Errorf("%w: the session bus doesn't answer: %w", ErrNoDesktop, err)
	}
	defer b.close()
	return ask(b)
}

// owned tells whether a program has the name.
func (b *bus) owned(ctx context.Context, name string) (owned bool, err error) {
	err = b.BusObject().CallWithContext(ctx, sessionBusName+".NameHasOwner", 0, name).Store(&owned)
	if err != nil {
		return false, fmt.Errorf("cannot ask the session bus for %s: %w", name, err)
	}
	return owned, nil
}

// withoutDisplay is ErrNoDesktop where nothing can be shown: a login by ssh or on a
// terminal has a session bus too. Where a program of a desktop is on the bus, there
// is a desktop all the same.
func withoutDisplay() error {
	if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
		return fmt.Errorf("%w: neither DISPLAY nor WAYLAND_DISPLAY is set", ErrNoDesktop)
	}
	return nil
}

func lookAtTray(ctx context.Context) (look TrayLook, err error) {
	err = onSessionBus(ctx, func(b *bus) error {
		if look.Watcher, err = b.owned(ctx, watcherName); err != nil {
			return err
		}
		if !look.Watcher {
			return withoutDisplay()
		}
		var host dbus.Variant
		err := b.Object(watcherName, watcherPath).CallWithContext(ctx,
			sessionBusName+".Properties.Get", dbus.FlagNoAutoStart, watcherName, "IsStatusNotifierHostRegistered").Store(&host)
		if err != nil {
			return fmt.Errorf("%s doesn't say whether icons are shown: %w", watcherName, err)
		}
		var ok bool
		if look.Host, ok = host.Value().(bool); !ok {
			return errors.New(watcherName + " doesn't say whether icons are shown")
		}
		return nil
	})
	return look, err
}

func lookAtNotifications(ctx context.Context) (look NotificationsLook, err error) {
	err = onSessionBus(ctx, func(b *bus) error {
		running, err := b.owned(ctx, notificationsName)
		if err != nil {
			return err
		}
		if !running {
			if err := withoutDisplay(); err != nil {
				return err
			}
			var names []string
			err := b.BusObject().CallWithContext(ctx, sessionBusName+".ListActivatableNames", 0).Store(&names)
			look.Startable = slices.Contains(names, notificationsName)
			return err
		}
		daemon := b.Object(notificationsName, notificationsPath)
		var name, vendor, version, spec string
		err = daemon.CallWithContext(ctx, notificationsName+".GetServerInformation", dbus.FlagNoAutoStart).Store(&name, &vendor, &version, &spec)
		if err == nil {
			err = daemon.CallWithContext(ctx, notificationsName+".GetCapabilities", dbus.FlagNoAutoStart).Store(&look.Can)
		}
		if err != nil {
			return fmt.Errorf("the notification daemon doesn't answer: %w", err)
		}
		look.Server = name + " " + version
		return nil
	})
	return look, err
}
