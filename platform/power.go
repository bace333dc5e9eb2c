package platform

import (
	"context"
	"log/slog"
)

// PowerEvent is what the machine, or the user's session on it, is about to do or has done.
type PowerEvent string

// The power events. An announcement may come more than once, and what takes it back
// also where none was heard.
const (
	PowerShutdown PowerEvent = "shutdown" // it goes down, or the session ends
	PowerSleep    PowerEvent = "sleep"    // it goes to sleep
	PowerWake     PowerEvent = "wake"     // it is awake again
	PowerStays    PowerEvent = "stays"    // an announced shutdown was called off
)

// WatchPower calls handle for each event, one at a time and in order. Where the
// system allows it, shutdown and sleep wait until handle has returned, for some
// seconds at most (logind: 5 s). It returns at once, and ends with ctx. Where
// nothing tells of such events it writes one line to log, and no event comes.
func WatchPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	watchPower(ctx, log, handle)
}

// HearPower is WatchPower for those who only want to know: nothing waits for them.
func HearPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	hearPower(ctx, log, handle)
}
