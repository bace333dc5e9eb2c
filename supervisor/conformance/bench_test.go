//go:build linux

package conformance

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The figures of the README. They are of the real program with the dev server (claims),
// and of one iteration each: what is measured is in the metric, not in ns/op.

func benchUser(b *testing.B) *user {
	b.Helper()
	u := newUser(b, newClaims)
	u.up(b)
	return u
}

// BenchmarkIdle measures what the supervisor costs while nothing happens: resident
// memory after 10 s, and processor time over a minute.
func BenchmarkIdle(b *testing.B) {
	u := benchUser(b)
	<-time.After(10 * time.Second)
	pid := u.supervisor.pid()
	b.ReportMetric(residentMB(b, pid), "MB-resident")
	const window = time.Minute
	before := cpuTime(b, pid)
	<-time.After(window)
	b.ReportMetric(100*float64(cpuTime(b, pid)-before)/float64(window), "%cpu")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkStatus measures the command's wall time, as a shell sees it.
func BenchmarkStatus(b *testing.B) {
	u := benchUser(b)
	var times []time.Duration
	for range 50 {
		began := time.Now()
		if r := u.exec(b, program, "status"); r.exit != 0 {
			b.Fatal(r)
		}
		times = append(times, time.Since(began))
	}
	reportMS(b, times, "status")
}

// BenchmarkRestart measures from `kill -9` of the server to the start of the next
// process, parking included, with nothing at work and with 1,000 claims; then also
// from the server's exit until the last of these has left its database.
func BenchmarkRestart(b *testing.B) {
	for _, claims := range []int{0, 1000} {
		b.Run(fmt.Sprintf("claims=%d", claims), func(b *testing.B) {
			u := benchUser(b)
			if claims > 0 {
				insertClaims(b, u, claims)
			}
			db := readonly(b, u.bed.(*v2).database())
			defer db.Close()
			server, supervisor := u.serving(b).Server.PID, u.supervisor.pid()
			began := time.Now()
			killNow(b, server)
			var gone, parked, spawned time.Duration
			for spawned == 0 || parked == 0 {
				if gone == 0 && !alive(server) {
					gone = time.Since(began)
				}
				if spawned == 0 && childOf(supervisor, server) != 0 {
					spawned = time.Since(began)
				}
				if parked == 0 && claimsIn(b, db) == 0 {
					parked = time.Since(began)
				}
				if time.Since(began) > 20*time.Second {
					b.Fatal("not parked, or no next process")
				}
				<-time.After(time.Millisecond)
			}
			reportMS(b, []time.Duration{spawned}, "kill-to-spawn")
			if claims > 0 {
				reportMS(b, []time.Duration{parked - gone}, "exit-to-parked")
			}
			u.serving(b)
			if n := len(u.pending(b)); n != claims {
				b.Fatalf("%d are pending, not %d", n, claims)
			}
		})
	}
}

func claimsIn(b *testing.B, db *sql.DB) (n int) {
	b.Helper()
	if err := db.QueryRow(`SELECT count(*) FROM session_v2 WHERE time_suspended IS NOT NULL`).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkConsent measures from the start of `intermission resume` to the request that
// reaches the model.
func BenchmarkConsent(b *testing.B) {
	u := benchUser(b)
	a := u.client(b)
	sessions := make([]work, 10)
	for i := range sessions {
		sessions[i] = begin(b, u.sandbox, u.bed, a, fmt.Sprintf("s%d", i), u.slow(900, 100), "", "")
	}
	u.down(b)
	u.up(b)
	var times []time.Duration
	for i, p := range u.wantPending(b, sessions...) {
		w := sessions[i]
		turns := u.turns(b, w)
		ended := make(chan result, 1)
		began := time.Now()
		go func() { ended <- u.resume(b, p) }()
		for u.turns(b, w) == turns {
			if time.Since(began) > 20*time.Second {
				b.Fatal("no continuation")
			}
			<-time.After(time.Millisecond)
		}
		times = append(times, time.Since(began))
		if r := <-ended; r.exit != 0 {
			b.Fatal(r)
		}
		u.idle(b, u.client(b), w)
	}
	reportMS(b, times, "consent-to-execution")
}

// reportMS reports the median and the greatest of some times.
func reportMS(b *testing.B, times []time.Duration, what string) {
	b.Helper()
	slices.Sort(times)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(times[len(times)/2]), "ms-"+what)
	if len(times) > 1 {
		b.ReportMetric(ms(times[len(times)-1]), "ms-"+what+"-max")
	}
}

func residentMB(b *testing.B, pid int) float64 {
	b.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^Rss:\s+(\d+) kB`).FindSubmatch(raw)
	if m == nil {
		b.Fatalf("no Rss in %s", raw)
	}
	kb, _ := strconv.Atoi(string(m[1]))
	return float64(kb) / 1024
}

// cpuTime is the processor time of all of a process's threads, to the nanosecond: the
// 10 ms of /proc/PID/stat are a sixth of the budget of a minute.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if len(tasks) == 0 {
		b.Fatalf("pid %d has no threads", pid)
	}
	var sum time.Duration
	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err != nil {
			continue // a thread that ended
		}
		first, _, _ := strings.Cut(string(raw), " ")
		ns, _ := strconv.ParseInt(first, 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// childOf gives a living child of pid that isn't except, 0 if it has none.
func childOf(pid, except int) int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		raw, _ := os.ReadFile(list)
		for field := range bytes.FieldsSeq(raw) {
			if child, _ := strconv.Atoi(string(field)); child != 0 && child != except && alive(child) {
				return child
			}
		}
	}
	return 0
}

// insertClaims makes n sessions with a claim, as if so many were at work: copies of one.
func insertClaims(b *testing.B, u *user, n int) {
	b.Helper()
	id, err := u.create(u.client(b), u.project(b, "claims"))
	if err != nil {
		b.Fatal(err)
	}
	database := u.bed.(*v2).database()
	columns := rows(b, database, `SELECT name FROM pragma_table_info('session_v2') WHERE name NOT IN ('id', 'time_suspended')`)
	list := "`" + strings.Join(columns, "`, `") + "`"
	db, err := sql.Open("sqlite", "file:"+database+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO session_v2 (id, time_suspended, `+list+`)
		SELECT printf('ses_bench%022d', i), ?, `+list+` FROM n, session_v2 WHERE session_v2.id = ?`,
		n, time.Now().UnixMilli(), id); err != nil {
		b.Fatalf("cannot insert claims: %v", err)
	}
}
