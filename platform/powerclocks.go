package platform

import (
	"context"
	"time"
)

// clocks are the time of day and how long the computer was awake. On macOS Go's
// monotonic clock is the latter: it stands still during a sleep.
type clocks struct {
	wall  time.Time // without a monotonic reading
	awake time.Duration
}

const (
	clocksBeat  = 30 * time.Second // between looks, for who has nothing to do is to wake the computer seldom
	shortestNap = 10 * time.Second // less is the clock being set right
)

// sleptBetween tells whether the computer slept between two looks. A clock that is set
// forward looks the same: a wake that was none costs a look at the server.
func sleptBetween(before, after clocks) bool {
	return after.wall.Sub(before.wall)-(after.awake-before.awake) >= shortestNap
}

// hearClocks tells of each wake until ctx ends.
func hearClocks(ctx context.Context, read func() clocks, handle func(PowerEvent)) {
	tick := time.NewTicker(clocksBeat)
	defer tick.Stop()
	last := read()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := read()
		if sleptBetween(last, now) && ctx.Err() == nil {
			handle(PowerWake)
		}
		last = now
	}
}
