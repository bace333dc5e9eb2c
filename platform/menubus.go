package platform

// MenuBus is the way that the tray's menu takes to its host, where there is one to
// be looked after: on Linux, the session bus.
type MenuBus struct{ menuBus }

// OpenMenuBus prepares the way of the menu. It must be called once, before the tray
// is shown.
func OpenMenuBus() (*MenuBus, error) {
	b := &MenuBus{}
	return b, b.open()
}

// Hold keeps the news that the menu has changed from its host, until Release tells
// the latest of it: a host reads the whole menu at each. Both are called by one
// goroutine, in turn.
func (b *MenuBus) Hold() { b.hold() }

// Release ends a Hold.
func (b *MenuBus) Release() { b.release() }

// Abandon lets go of a host that takes no more, within a second: the tray ends.
func (b *MenuBus) Abandon() { b.abandon() }
