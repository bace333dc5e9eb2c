package platform

import (
	"context"
	"log/slog"
	"time"
)

// powerHearers are the watchers of this process: the service manager, or the window
// that the process has for it, tells them. powerListeners only want to know, and are
// told by a window of their own.
var powerHearers, powerListeners hearers

// How long Windows is kept waiting: it gives a window 5 s to answer, and 2 s before it sleeps.
const (
	sessionAnswer = 4 * time.Second
	sleepAnswer   = 1500 * time.Millisecond
)

// watchPower hears of events from the service manager in a service, and through a
// hidden window otherwise: Windows announces nothing to a process without one.
func watchPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	powerHearers.add(ctx, handle)
	if m := theRun.Load(); m != nil && m.service {
		return
	}
	if err := watchWindow.open(ctx); err != nil {
		log.Warn("no power events: sessions are suspended when the server stops, not at the announcement", "error", err)
	}
}

// hearPower keeps Windows waiting for nothing, and has no say in the order of a shutdown.
func hearPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	powerListeners.add(ctx, handle)
	if err := hearWindow.open(ctx); err != nil {
		log.Info("no power events: what is shown after a sleep may be older", "error", err)
	}
}

// Events of WM_POWERBROADCAST (winuser.h).
const (
	pbtSuspend         = 0x4  // PBT_APMSUSPEND
	pbtResumeCritical  = 0x6  // PBT_APMRESUMECRITICAL
	pbtResumeAutomatic = 0x12 // PBT_APMRESUMEAUTOMATIC: comes after each sleep; PBT_APMRESUMESUSPEND after it, when somebody is there
)

// powerEvent is what an event of WM_POWERBROADCAST, or of a service's control, means for us.
func powerEvent(event uintptr) (PowerEvent, bool) {
	switch event {
	case pbtSuspend:
		return PowerSleep, true
	case pbtResumeAutomatic, pbtResumeCritical:
		return PowerWake, true
	}
	return "", false
}

// watchMessage is what a message means to the supervisor; Windows waits for the answer.
func watchMessage(window, message, w uintptr) (answer uintptr, known bool) {
	switch message {
	case wmQueryEndSession:
		blockShutdown(window)
		powerHearers.announce(PowerShutdown).wait(sessionAnswer)
		return 1, true
	case wmEndSession:
		defer func() { _, _, _ = procUnblockReason.Call(window) }()
		if w == 0 {
			powerHearers.announce(PowerStays)
			return 0, true
		}
		// When this returns the process may be ended at any moment.
		endSession(errSessionEnds, ServiceStopLimit)
		return 0, true
	case wmPowerBroadcast:
		if e, ok := powerEvent(w); ok {
			announced := powerHearers.announce(e)
			if e == PowerSleep {
				announced.wait(sleepAnswer)
			}
		}
		return 1, true
	}
	return 0, false
}

// hearMessage is what it means to those who only listen: they are told, and the answer
// is given at once.
func hearMessage(_, message, w uintptr) (answer uintptr, known bool) {
	switch message {
	case wmQueryEndSession:
		powerListeners.announce(PowerShutdown)
		return 1, true
	case wmEndSession:
		if w == 0 {
			powerListeners.announce(PowerStays)
		}
		return 0, true
	case wmPowerBroadcast:
		if e, ok := powerEvent(w); ok {
			powerListeners.announce(e)
		}
		return 1, true
	}
	return 0, false
}
