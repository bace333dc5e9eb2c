//go:build !darwin || cgo

package tray

import (
	"testing"
	"testing/synctest"
)

// TestRemovedIsNotClicked: the library closes the channel of an item that it removes, which
// who waits for a click must not take for one. Ours is gone before, and knows it closed.
func TestRemovedIsNotClicked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clicked := make(chan Action, 8)
		d := &desktopTray{clicks: func(a Action) { clicked <- a }}
		add := func(id string) *trayItem {
			return d.add(nil, Item{Key: id, Title: id, Action: Action{Verb: Resume, Session: id, At: 1}}).(*trayItem)
		}
		removed, closed, kept := add("removed"), add("closed"), add("kept")
		removed.remove()
		if removed.ClickedCh != nil {
			t.Error("the library has a channel to close")
		}
		close(closed.ClickedCh) // as it does
		synctest.Wait()
		kept.ClickedCh <- struct{}{}
		synctest.Wait()
		if a := <-clicked; a.Session != "kept" || len(clicked) > 0 {
			t.Errorf("%s was clicked, and %d more", a.Session, len(clicked))
		}
		kept.remove()
		closed.ClickedCh = nil
		closed.remove()
	})
}
