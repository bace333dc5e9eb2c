package platform

import (
	"context"
	"log/slog"
	"time"
)

// watchPower hears of no announcement: macOS makes them by IOKit and AppKit only,
// which need a Mac to build for and to test with. launchd ends the agent by SIGTERM
// at logout and shutdown, and gives it ExitTimeOut: sessions are suspended then. That
// the computer has slept is told by its clocks, half a minute after it at the latest:
// this is the one thing that isn't idle here.
func watchPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	log.Info("macOS announces neither sleep nor shutdown here: sessions are suspended when launchd ends the supervisor; a wake is told by the clocks, within half a minute")
	began := time.Now()
	go hearClocks(ctx, func() clocks {
		now := time.Now()
		return clocks{wall: now.Round(0), awake: now.Sub(began)}
	}, handle)
}
