//go:build windows || darwin

package platform

import (
	"context"
	"sync/atomic"

	"github.com/gen2brain/beeep"
)

// presenter shows by beeep, which has no time limit, no way to replace a notice and no actions.
type presenter struct {
	calls  aside
	closed atomic.Bool
}

func (n *Notifier) open() {
	beeep.AppName = "Intermission" // the sender that the person sees
	n.calls = newAside()
}

func (n *Notifier) present(ctx context.Context, notice Notice) error {
	if n.closed.Load() {
		return errNotifierClosed
	}
	title, body := beeepText(notice.Title), beeepText(notice.Body)
	// Notify also for what is urgent: beeep's Alert differs by a sound only.
	return n.calls.do(ctx, func() error { return beeep.Notify(title, body, n.icon) })
}

func (n *Notifier) close() { n.closed.Store(true) }
