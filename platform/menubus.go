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

// Abandon ends the connection in a second, and with it all that waits for a host or
// a bus that is frozen: the tray ends, and uses that second to say so. It returns at once.
func (b *MenuBus) Abandon() { b.abandon() }

// Done is closed when the connection is gone, with which the tray's icon is gone: the
// bus can end this one alone. On other systems it stays open. Call it after OpenMenuBus.
func (b *MenuBus) Done() <-chan struct{} { return b.done() }
