package tray

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // of the zones below

	"intermission/restart"
	"intermission/supervisor/control"
)

func outcomes(snap control.Snapshot, list ...control.Outcome) control.Snapshot {
	snap.Outcomes = list
	return snap
}

func TestOneNoticeAtStartup(t *testing.T) {
	t.Parallel()
	s := told()
	snap := with(running(), many(2)...)
	s.sees(snap)
	s.sees(snap)
	s.passes(time.Hour)
	s.wantNotices(t, "pending 2 sessions wait for you: “Session 0” and “Session 1”. Nothing was resumed.")

	s = told()
	s.sees(with(running(), many(50)...))
	s.wantNotices(t, "pending 50 sessions wait for you: Nothing was resumed.")

	s = told()
	s.sees(running())
	s.passes(24 * time.Hour)
	s.wantNotices(t)
}

// TestNoticeWaitsForTheStart: what is parked while the server starts is told
// together with what was pending before.
func TestNoticeWaitsForTheStart(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(at(with(running(), many(1)...), "starting", ""))
	s.passes(time.Second)
	s.sees(at(with(running(), many(3)...), "starting", ""))
	s.wantNotices(t)
	s.sees(with(running(), many(3)...))
	s.passes(time.Hour)
	s.wantNotices(t, "pending 3 sessions wait for you: “Session 0”, “Session 1” and “Session 2”. Nothing was resumed.")

	s = told() // one that doesn't come up
	s.sees(at(with(running(), many(1)...), "starting", ""))
	s.passes(settling)
	s.wantNotices(t, "pending 1 session waits for you: “Session 0”. Nothing was resumed.")
}

func TestNoticesAreCoalesced(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(running())
	for n := 1; n <= 5; n++ {
		s.sees(with(running(), many(20)[:n]...))
		s.passes(time.Second)
	}
	s.wantNotices(t, "pending 1 session waits for you: “Session 0”. Nothing was resumed.")
	s.passes(noticePause)
	s.wantNotices(t, "pending 5 sessions wait for you: New: “Session 1”, “Session 2”, “Session 3” and 1 more. Nothing was resumed.")
	// What was decided meanwhile isn't told.
	s.sees(with(running(), many(20)[:6]...))
	s.sees(with(running(), many(20)[:5]...))
	s.passes(time.Hour)
	s.wantNotices(t)
	// A suspension anew is news.
	again := many(20)[:5]
	again[0].SuspendedAt++
	s.sees(with(running(), again...))
	s.wantNotices(t, "pending 5 sessions wait for you: New: “Session 0”. Nothing was resumed.")
}

func TestQuietHours(t *testing.T) {
	t.Parallel()
	night := []QuietHours{{22 * 60, 7 * 60}}
	s := told()
	s.state.Quiet = night
	s.state.Now = time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)
	s.sees(with(running(), many(2)...))
	s.sees(outcomes(with(running(), many(2)...), control.Outcome{Seq: 1, ID: "ses_z", Title: "Z", What: "failed", Reason: "no money"}))
	s.passes(7*time.Hour + 59*time.Minute)
	s.wantNotices(t)
	s.passes(2 * time.Minute)
	s.wantNotices(t, "ended It did not go on: “Z” failed: no money", "pending 2 sessions wait for you: “Session 0” and “Session 1”. Nothing was resumed.")

	for _, tt := range []struct{ at, until string }{
		{"21:59", "21:59"}, {"22:00", "07:00"}, {"00:00", "07:00"}, {"06:59", "07:00"}, {"07:00", "07:00"}, {"12:30", "14:00"},
	} {
		from, err := time.Parse("15:04", tt.at)
		if err != nil {
			t.Fatal(err)
		}
		hours := append(night, QuietHours{12 * 60, 13 * 60}, QuietHours{13 * 60, 14 * 60})
		if got := quietUntil(hours, from).Format("15:04"); got != tt.until {
			t.Errorf("%s: quiet until %s, want %s", tt.at, got, tt.until)
		}
	}
}

// TestQuietHoursInSummerTime: the end of the night is a time that doesn't exist.
func TestQuietHoursInSummerTime(t *testing.T) {
	t.Parallel()
	for name, day := range map[string]time.Time{
		"America/New_York": time.Date(2026, 3, 8, 0, 0, 0, 0, time.UTC), "Europe/Berlin": time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC),
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		night := []QuietHours{{22 * 60, 2*60 + 30}}
		for at := time.Date(day.Year(), day.Month(), day.Day()-1, 22, 0, 0, 0, zone); at.Hour() != 4; at = at.Add(time.Minute) {
			end := quietUntil(night, at)
			if at.Hour() >= 22 || at.Hour() < 2 {
				if got := end.Format("15:04"); got != "03:30" {
					t.Fatalf("%v: quiet until %s", at, got)
				}
			} else if at.Hour() == 3 && at.Minute() >= 30 && !end.Equal(at) {
				t.Fatalf("%v is quiet until %v", at, end)
			}
		}
	}
}

func TestNoticesSwitchedOff(t *testing.T) {
	t.Parallel()
	s := told()
	s.state.Notify = false
	s.sees(with(running(), many(2)...))
	s.sees(at(running(), "failed", "x"))
	s.passes(time.Hour)
	s.wantNotices(t)
}

func TestOutcomesAreToldOnce(t *testing.T) {
	t.Parallel()
	since := noon.Add(-time.Hour)
	snap := running()
	snap.Status.Supervisor.Since = since
	one := control.Outcome{Seq: 1, ID: "ses_a", Title: "A", What: "ended_at_once"}
	two := control.Outcome{Seq: 2, ID: "ses_b", Title: "<b>B</b>\n", What: "failed", Reason: "the provider says no"}
	three := control.Outcome{Seq: 3, ID: "ses_c", What: "unknown", Reason: "the server ended"}
	s := told()
	s.sees(outcomes(snap, one)) // before our time
	s.wantNotices(t)
	s.sees(outcomes(snap, one, two))
	s.sees(outcomes(snap, one, two))
	s.wantNotices(t, "ended It did not go on: “<b>B</b>” failed: the provider says no")
	s.sees(outcomes(snap, two, three))
	s.passes(noticePause)
	s.wantNotices(t, "ended It did not go on: “ses_c” may have gone on or not: that can't be known: the server ended")
	// Another supervisor counts from 1 again.
	s.passes(noticePause)
	s.do(Input{Lost: &Loss{Absent: true}})
	snap.Status.Supervisor.Since = noon
	s.sees(outcomes(snap, one, two))
	s.wantNotices(t, "ended It did not go on: “A” ended at once, having done nothing\n“<b>B</b>” failed: the provider says no")
}

func TestGivingUpIsTold(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(running())
	s.sees(at(running(), "backoff", "died"))
	s.sees(at(running(), "failed", "5 deaths in 5 minutes"))
	s.sees(at(running(), "failed", "5 deaths in 5 minutes"))
	s.wantNotices(t, "server OpenCode is not running: OpenCode 1.18.33 failed, and is not started again. 5 deaths in 5 minutes")
	s.passes(time.Hour)
	s.wantNotices(t)
	s.sees(running())
	s.wantNotices(t, "server Intermission: OpenCode 1.18.33 is running again.")
	s.passes(time.Hour)
	// It recovered before the pause was over: nothing to tell any more.
	s.sees(at(running(), "blocked", "disk full"))
	s.wantNotices(t, "server OpenCode is not running: OpenCode 1.18.33 is not started, to keep its sessions suspended. disk full")
	s.sees(running())
	s.sees(at(running(), "blocked", "disk full"))
	s.sees(running())
	s.passes(time.Hour)
	s.wantNotices(t, "server Intermission: OpenCode 1.18.33 is running again.")
}

func TestStallIsToldOnce(t *testing.T) {
	t.Parallel()
	const told1 = "stalled No progress: “Wait” has shown no progress for 30 min. It can be interrupted in the menu."
	w := control.Working{ID: "ses_w", Title: "Wait", StartedAt: ago(time.Hour), ProgressAt: ago(time.Minute), Quiet: true}
	s := told()
	s.sees(working(running(), w))
	s.passes(28*time.Minute + 59*time.Second)
	s.wantNotices(t)
	s.passes(time.Second)
	s.wantNotices(t, told1)
	s.passes(5 * time.Hour)
	s.wantNotices(t)
	w.ProgressAt = s.state.Now.UnixMilli() // it moves, and then hangs again
	s.sees(working(running(), w))
	s.passes(31 * time.Minute)
	s.wantNotices(t, told1)

	// The eleventh isn't in the menu, and is told all the same.
	var list []control.Working
	for i := range maxBusy {
		list = append(list, control.Working{ID: string(rune('a' + i)), StartedAt: ago(time.Hour), ProgressAt: ago(0)})
	}
	s = told()
	w.ProgressAt = ago(time.Minute)
	s.sees(working(running(), append(list, w)...))
	s.passes(time.Hour)
	s.wantNotices(t, told1)
}

// TestBusyIsNotStalled: of a session that works steadily no news comes, nor is one
// stalled that waits for its user.
func TestBusyIsNotStalled(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(working(running(), control.Working{ID: "ses_w", Title: "Busy", StartedAt: ago(0), ProgressAt: ago(0)},
		control.Working{ID: "ses_a", Title: "Asks", StartedAt: ago(0), ProgressAt: ago(0), Quiet: true, WaitingFor: "permission"}))
	s.passes(10 * time.Hour)
	s.wantNotices(t)
	m, _ := Model(s.state)
	if text := drawn(m); strings.Contains(text, "no progress") || strings.Contains(text, "⚠") {
		t.Error(text)
	}
}

// TestHeldBackIsNotLost: what comes due while no supervisor tells what is true waits for one that does.
func TestHeldBackIsNotLost(t *testing.T) {
	t.Parallel()
	s := told()
	s.state.Quiet = []QuietHours{{12 * 60, 13 * 60}}
	s.sees(with(at(running(), "failed", "died"), many(2)...))
	s.passes(59 * time.Minute)
	s.do(Input{Lost: &Loss{Absent: true}})
	s.passes(2 * time.Minute)
	s.wantNotices(t, "absent No supervisor is running: Until one runs, nothing keeps sessions from going on by themselves. Start it in the menu.")
	s.sees(with(at(running(), "failed", "died"), many(2)...))
	s.wantNotices(t, "pending 2 sessions wait for you: “Session 0” and “Session 1”. Nothing was resumed.", "server OpenCode is not running: OpenCode 1.18.33 failed, and is not started again. died")
}

// TestAbsenceIsToldOnce: a supervisor that is restarted is no news.
func TestAbsenceIsToldOnce(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(running())
	for range 3 {
		s.do(Input{Lost: &Loss{Absent: true}})
		s.passes(missing - time.Second)
		s.sees(running())
	}
	s.passes(time.Hour)
	s.wantNotices(t)
	s.do(Input{Lost: &Loss{Absent: true}})
	s.passes(48 * time.Hour)
	s.wantNotices(t, "absent No supervisor is running: Until one runs, nothing keeps sessions from going on by themselves. Start it in the menu.")
}

// TestOwnStopIsNoNews: who clicks "suspend 1 session and stop" knows it.
func TestOwnStopIsNoNews(t *testing.T) {
	t.Parallel()
	s := told()
	s.sees(working(running(), control.Working{ID: "ses_a"}))
	stop := Action{Verb: StopServer, Shown: "ses_a"}
	s.clicks(stop)
	s.wantActs(t, stop)
	s.sees(at(with(running(), stateOf("ses_a", restart.StatePending, "")), "stopping", ""))
	s.do(Input{Done: &Done{Action: stop}})
	s.passes(time.Hour)
	s.wantNotices(t)
}

// TestAnswersAreToldEach: of what several clicks came to, a line each.
func TestAnswersAreToldEach(t *testing.T) {
	t.Parallel()
	s := told()
	list := many(6)
	s.sees(with(running(), list...))
	s.notices = nil
	for i, outcome := range []string{"refused", "queued", "unknown", "refused"} {
		s.do(Input{Done: &Done{Action: Action{Verb: Resume, Session: list[i].ID, At: list[i].SuspendedAt}, Outcome: outcome, Reason: "so it is"}})
	}
	s.do(Input{Done: &Done{Action: Action{Verb: StopServer}, Reason: "it hangs"}})
	s.passes(time.Hour)
	s.wantNotices(t, "act Intermission: “Session 0” was not resumed: so it is",
		"act Intermission: Whether “Session 2” goes on is not known: so it is\n“Session 3” was not resumed: so it is\nThe server was not stopped: it hangs")
}

// TestClockSetBack: nothing is held up for a year, nor told twice.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	s := told()
	s.state.Now = noon.AddDate(1, 0, 0)
	s.sees(with(running(), many(2)[:1]...))
	s.state.Now = noon
	s.sees(with(running(), many(2)...))
	s.passes(time.Minute)
	s.wantNotices(t, "pending 1 session waits for you: “Session 0”. Nothing was resumed.", "pending 2 sessions wait for you: New: “Session 1”. Nothing was resumed.")
}

// TestARefusalIsToldOnce: the supervisor's word of it and the answer to the click
// come in either order.
func TestARefusalIsToldOnce(t *testing.T) {
	t.Parallel()
	p := stateOf("ses_a", restart.StatePending, "")
	resume := Action{Verb: Resume, Session: p.ID, At: p.SuspendedAt}
	refused := control.Outcome{Seq: 1, ID: p.ID, SuspendedAt: p.SuspendedAt, What: "refused", Reason: "500"}
	for _, answerFirst := range []bool{true, false} {
		s := told()
		s.sees(with(running(), p))
		s.notices = nil
		s.clicks(resume)
		answer := func() { s.do(Input{Done: &Done{Action: resume, Outcome: "refused", Reason: "500"}}) }
		if answerFirst {
			answer()
		}
		s.sees(outcomes(with(running(), p), refused))
		if !answerFirst {
			answer()
		}
		s.passes(time.Hour)
		s.wantNotices(t, "act Intermission: “ses_a” was not resumed: 500")
	}
	s := told() // somebody else's click
	s.sees(with(running(), p))
	s.notices = nil
	s.sees(outcomes(with(running(), p), refused))
	s.wantNotices(t, "ended It did not go on: “ses_a” was not resumed, and stays pending: 500")
}
