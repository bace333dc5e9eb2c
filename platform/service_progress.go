package platform

import "time"

// progress follows a service that says by rising check points that it gets on.
type progress struct {
	began, last time.Time
	point       uint32
}

// Bounds of what a service may take, whatever it says, and of how long it may say nothing.
const (
	progressLimit = ServiceStopLimit + 15*time.Second
	progressQuiet = 30 * time.Second
)

// late tells whether a service that has reached a check point, and has said how long
// until the next, is to be given up.
func (p *progress) late(now time.Time, point uint32, hint time.Duration) bool {
	if p.began.IsZero() {
		p.began, p.last = now, now
	}
	if point > p.point {
		p.point, p.last = point, now
	}
	return now.Sub(p.began) > progressLimit || now.Sub(p.last) > max(hint, progressQuiet)
}
