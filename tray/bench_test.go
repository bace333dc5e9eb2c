//go:build linux

package tray

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"intermission/platform"
)

// The figures of the README, of intermission as users have it.

// newBench is a desk with a panel and a supervisor that says n are pending, before the tray is started.
func newBench(b *testing.B, n int) *setting {
	b.Helper()
	s := &setting{bus: newPlainBus(b)}
	s.host = newHost(b, s.bus)
	s.desk = newDesk(b, s.bus)
	s.supervisor, s.retire = s.supervise(b, fresh(with(running(), many(n)...)))
	return s
}

// BenchmarkTimeToIcon is from the start of the process to its registration with the host.
func BenchmarkTimeToIcon(b *testing.B) {
	s := newBench(b, 10)
	intermission(b)
	var worst, sum time.Duration
	for i := range 10 {
		began := time.Now()
		p := s.start(b, nil, "tray")
		s.host.waitRegistrations(b, i+1)
		took := time.Since(began)
		worst, sum = max(worst, took), sum+took
		p.end(b, syscall.SIGTERM)
	}
	b.ReportMetric(float64(sum.Milliseconds())/10, "ms/icon")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMenuFollows is from a change in the supervisor to the last signal that
// tells the host of it: one session more or less, or all of them others.
func BenchmarkMenuFollows(b *testing.B) {
	for _, n := range []int{1, 10, 50} {
		for _, all := range []bool{false, true} {
			name := fmt.Sprintf("%d pending, one changes", n)
			if all {
				name = fmt.Sprintf("%d pending, all change", n)
			}
			b.Run(name, func(b *testing.B) {
				s := newBench(b, n)
				s.start(b, nil, "tray")
				item := s.host.item(b)
				item.waitMenu(b, shows(fmt.Sprintf("Pending (%d)", n)))
				item.settled(b)
				snap := fresh(with(running(), many(n+1)...))
				list := snap.Pending
				var worst, sum time.Duration
				const rounds = 40
				for i := range rounds {
					// One more at the top moves all others down; then it is gone again.
					snap.Pending = slices.Clone(list[:n+1-i%2])
					for j := range snap.Pending {
						if all {
							snap.Pending[j].SuspendedAt += int64(i)
						}
					}
					snap.Status.Server.Version = fmt.Sprint("1.0.", i)
					began, before := time.Now(), item.drawn()
					s.supervisor.say(snap)
					if !item.news.await(func() bool { return item.drawn() > before }) {
						b.Fatal("it isn't drawn")
					}
					_, latest := item.changes()
					took := latest.Sub(began)
					worst, sum = max(worst, took), sum+took
				}
				b.ReportMetric(float64(sum.Microseconds())/rounds/1000, "ms/change")
				b.ReportMetric(float64(worst.Microseconds())/1000, "ms-worst")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkIdle is what a tray with ten pending costs that does nothing.
func BenchmarkIdle(b *testing.B) {
	s := newBench(b, 10)
	p := s.start(b, nil, "tray")
	item := s.host.item(b)
	item.waitMenu(b, shows("Pending (10)"))
	item.settled(b)
	time.Sleep(2 * time.Second) // what the start still does
	ticks, switches := used(b, p.cmd.Process.Pid)
	const watched = 30 * time.Second
	time.Sleep(watched)
	ticksAfter, switchesAfter := used(b, p.cmd.Process.Pid)
	rss, err := platform.RSS(p.cmd.Process.Pid)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(rss)/1e6, "MB-resident")
	b.ReportMetric(float64(ticksAfter-ticks)/watched.Seconds(), "%-of-a-core") // a tick is 10 ms
	b.ReportMetric(float64(switchesAfter-switches)/watched.Seconds(), "wakeups/s")
	b.ReportMetric(0, "ns/op")
}

// used gives a process's processor time in ticks of 10 ms, and how often its threads were woken.
func used(b *testing.B, pid int) (ticks, switches int) {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, f := range fields[11:13] {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, task := range tasks {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil {
			b.Fatal(err)
		}
		for _, line := range strings.Split(string(status), "\n") {
			var n int
			if _, err := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &n); err == nil {
				switches += n
			}
		}
	}
	return ticks, switches
}
