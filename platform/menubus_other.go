//go:build !linux

package platform

// menuBus is nothing: the system's own menu is changed by calls.
type menuBus struct{}

func (menuBus) open() error { return nil }
func (menuBus) hold()       {}
func (menuBus) release()    {}
func (menuBus) abandon()    {}

func (menuBus) done() <-chan struct{} { return nil }
