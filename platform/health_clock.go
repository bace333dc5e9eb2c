package platform

import "errors"

// ErrUnknownClock says that the system doesn't tell whether its clock is set by others.
var ErrUnknownClock = errors.New("the system doesn't tell whether its clock is synchronised")

// ClockSynchronised tells whether the system's clock follows a time server.
// ErrUnknownClock where that can't be told.
func ClockSynchronised() (bool, error) { return clockSynchronised() }
