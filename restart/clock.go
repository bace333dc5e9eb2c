package restart

import "time"

const (
	clockStep  = time.Second      // by less than this a clock is slewed and not set
	eventDelay = 10 * time.Second // what an event may take from its server to us
)

// setBack says that an event of the time at is news although known is later: the
// clock was set back (by NTP; a hardware clock in local time), for ours, the same
// one, is before known as well, and the event has just come. Such an event is
// taken by its arrival, as one that says no time.
//
// What is old stays old: an event that comes again while the clock is right, or
// that is older than eventDelay by the clock that was set back. Not covered: a
// step of less than clockStep, an event that comes twice within eventDelay while
// the clock is behind (a claim that is made so ends by what the server's database
// says), and one that takes longer to come.
func setBack(at, now, known int64) bool {
	return at != 0 && at < known && now < known-clockStep.Milliseconds() &&
		at > now-eventDelay.Milliseconds() && at < now+clockStep.Milliseconds()
}
