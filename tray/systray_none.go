//go:build darwin && !cgo

package tray

import (
	"errors"

	"intermission/assets"
)

// desktopTray is not in a build without cgo: on macOS systray needs it.
type desktopTray struct{ surface }

func newTray(func(Action)) (*desktopTray, error) {
	return nil, errors.New("this build has no tray: on macOS it must be built with CGO_ENABLED=1; every act of the tray is also a command, see: intermission --help")
}

func (t *desktopTray) run(Menu, func()) error  { return nil }
func (t *desktopTray) quit()                   {}
func (t *desktopTray) abandon()                {}
func (t *desktopTray) gone() <-chan struct{}   { return nil }
func (t *desktopTray) opened() <-chan struct{} { return nil }
func (t *desktopTray) setIcon(assets.Icon)     {}
