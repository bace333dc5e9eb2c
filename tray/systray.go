//go:build !darwin || cgo

package tray

import (
	"fmt"

	"fyne.io/systray"

	"intermission/assets"
	"intermission/platform"
)

// desktopTray is the system's tray, by systray. There is one a process.
type desktopTray struct {
	clicks func(Action)
	bus    *platform.MenuBus
}

// newTray makes the tray; a click on one of its items is given to clicks, which
// may be called from any goroutine and must not block for long.
func newTray(clicks func(Action)) (*desktopTray, error) {
	bus, err := platform.OpenMenuBus()
	if err != nil {
		return nil, fmt.Errorf("cannot show the tray: %w", err)
	}
	return &desktopTray{clicks: clicks, bus: bus}, nil
}

// run shows the tray until quit is called. first is what it looks like before it
// can be drawn on; ready is called when it can, and returns soon. It must be
// called on the main goroutine.
func (t *desktopTray) run(first Menu, ready func()) (err error) {
	if platform.TrayBeforeLoop {
		// The title becomes the tray's id, by which hosts remember its place. What is
		// set in ready is lost at times, since the connection is being made then.
		systray.SetTitle(appTitle)
		systray.SetIcon(first.Icon.Data())
		systray.SetTooltip(first.Tooltip)
	}
	defer func() {
		if p := recover(); p != nil { // it has no connection any more and uses it
			err = fmt.Errorf("cannot show the tray: %v", p)
		}
	}()
	systray.Run(ready, nil)
	return nil
}

func (t *desktopTray) quit()                 { systray.Quit() }
func (t *desktopTray) abandon()              { t.bus.Abandon() }
func (t *desktopTray) gone() <-chan struct{} { return t.bus.Done() }

func (t *desktopTray) begin() { t.bus.Hold() }
func (t *desktopTray) end()   { t.bus.Release() }

// opened receives when the menu is opened, on systems that tell.
func (t *desktopTray) opened() <-chan struct{} { return systray.TrayOpenedCh }

func (t *desktopTray) setIcon(i assets.Icon) {
	if template := i.Template(); template != nil {
		systray.SetTemplateIcon(template, i.Data())
		return
	}
	systray.SetIcon(i.Data())
}

func (t *desktopTray) setTitle(s string) { systray.SetTitle(s) }

func (t *desktopTray) setTooltip(s string) { systray.SetTooltip(s) }

func (t *desktopTray) add(parent element, i Item) element {
	if i.Separator {
		systray.AddSeparator() // only the menu itself has them: they can't be removed
		return rule{}
	}
	title := platform.MenuText(i.Title)
	e := &trayItem{}
	switch p, below := parent.(*trayItem); {
	case below && i.Checkable:
		e.MenuItem = p.AddSubMenuItemCheckbox(title, "", i.Checked)
	case below:
		e.MenuItem = p.AddSubMenuItem(title, "")
	case i.Checkable:
		e.MenuItem = systray.AddMenuItemCheckbox(title, "", i.Checked)
	default:
		e.MenuItem = systray.AddMenuItem(title, "")
	}
	t.attend(e, i.Action)
	if i.Disabled {
		e.Disable()
	}
	if i.Hidden {
		e.Hide()
	}
	return e
}

// attend passes the item's clicks on until it is removed.
func (t *desktopTray) attend(e *trayItem, a Action) {
	if a == (Action{}) {
		e.ClickedCh = nil // a disabled item is told of clicks too
		return
	}
	clicked, gone := make(chan struct{}, 1), make(chan struct{}) // one place: a click isn't lost while another is passed on
	e.ClickedCh, e.gone = clicked, gone
	go func() { // until the item is removed, or the process ends
		for {
			select {
			case <-gone:
				return
			case _, ok := <-clicked:
				if !ok {
					return // closed is not clicked
				}
				t.clicks(a)
			}
		}
	}()
}

// trayItem is an item of the system's tray.
type trayItem struct {
	*systray.MenuItem
	gone chan struct{} // closed at its removal; nil when it can't be clicked
}

func (e *trayItem) setTitle(s string) { e.SetTitle(platform.MenuText(s)) }

func (e *trayItem) setDisabled(v bool) {
	if v {
		e.Disable()
	} else {
		e.Enable()
	}
}

func (e *trayItem) setChecked(v bool) {
	if v {
		e.Check()
	} else {
		e.Uncheck()
	}
}

func (e *trayItem) setHidden(v bool) {
	if v {
		e.Hide()
	} else {
		e.Show()
	}
}

// remove ends the item. systray closes its channel, on which a click that comes
// at that moment would panic: it is given none to close.
func (e *trayItem) remove() {
	e.ClickedCh = nil
	if e.gone != nil {
		close(e.gone)
	}
	e.Remove()
}

// rule is a separator, which stays as it is: only the menu itself has some.
type rule struct{}

func (rule) setTitle(string)  {}
func (rule) setDisabled(bool) {}
func (rule) setChecked(bool)  {}
func (rule) setHidden(bool)   {}
func (rule) remove()          {}
