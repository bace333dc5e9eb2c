package platform

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// clockErrorMax is the error, in microseconds, from which on the kernel's clock is
// not synchronised. It grows while nobody sets the clock, up to this value.
const clockErrorMax = 16_000_000

// clockSynchronised asks the kernel, as systemd does for NTPSynchronized of
// org.freedesktop.timedate1 (systemd 255, src/basic/time-util.c): to ask that
// service would start it.
func clockSynchronised() (bool, error) {
	var t unix.Timex // Modes 0: read, and set nothing
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnknownClock, err)
	}
	return t.Maxerror < clockErrorMax, nil
}
