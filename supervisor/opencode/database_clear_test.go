package opencode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"intermission/restart"
)

// parked makes a server with two claims and two jobs, and reads them.
func parked(t *testing.T) (*server, *Database, restart.Sweep) {
	t.Helper()
	s := newServer(t, KindClaims)
	s.session("ses_1", "time_suspended = 1790000000000, resume_attempts = 3")
	s.session("ses_2", "time_suspended = 1790000000000, parent_id = 'ses_1'")
	s.session("ses_idle", "")
	s.job("n1", shellJob)
	s.job("n2", agentJob)
	s.exec(`INSERT INTO kv VALUES ('other', '{}', 0, 0)`)
	d := s.open(V2)
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != 2 || len(sweep.Jobs) != 2 {
		t.Fatal(sweep, err)
	}
	return s, d, sweep
}

// standing tells what a server would find at its boot.
func (s *server) standing() string {
	return fmt.Sprintf("%d claims, %d jobs",
		s.count(`SELECT count(*) FROM session_v2 WHERE time_suspended IS NOT NULL`),
		s.count(`SELECT count(*) FROM kv WHERE key LIKE 'job.background/%'`))
}

func TestClearTakesAllAndOnlyThat(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	before := s.count(`SELECT count(*) FROM session_v2 WHERE title = 'Title of ' || id AND time_updated = 2`)
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if got := s.standing(); got != "0 claims, 0 jobs" {
		t.Error(got)
	}
	if n := s.count(`SELECT count(*) FROM session_v2 WHERE title = 'Title of ' || id AND time_updated = 2`); n != before || n != 3 {
		t.Errorf("%d sessions as they were, of %d", n, before)
	}
	if s.count(`SELECT resume_attempts FROM session_v2 WHERE id = 'ses_1'`) != 3 || s.count(`SELECT count(*) FROM kv`) != 1 {
		t.Error("something else was touched")
	}
	if held := d.LastHeld(); held <= 0 {
		t.Errorf("held for %v", held)
	}
	if err := d.Clear(t.Context(), sweep); !errors.Is(err, restart.ErrChanged) {
		t.Error("cleared twice:", err)
	}
	if again, err := d.Sweep(t.Context()); err != nil || len(again.Claims)+len(again.Jobs) != 0 {
		t.Error(again, err)
	}
}

func TestClearTakesRenamedColumnAndOwner(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.exec(`ALTER TABLE session_v2 RENAME COLUMN time_suspended TO execution_claimed_at`)
	s.exec(`ALTER TABLE session_v2 ADD claim_owner TEXT`)
	s.exec(`ALTER TABLE session_v2 ADD claim_pid INTEGER`)
	s.exec(`ALTER TABLE session_v2 ADD claim_hostname TEXT`)
	s.session("ses_1", "execution_claimed_at = 7, claim_owner = 'me', claim_pid = 1, claim_hostname = 'here'")
	d := s.open(V2)
	sweep, err := d.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if s.count(`SELECT count(*) FROM session_v2 WHERE coalesce(execution_claimed_at, claim_owner, claim_pid, claim_hostname) IS NULL`) != 1 {
		t.Error("part of the claim is left")
	}
}

func TestClearRefusesWhatChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"claim renewed":     `UPDATE session_v2 SET time_suspended = 1790000000001 WHERE id = 'ses_1'`,
		"claim gone":        `UPDATE session_v2 SET time_suspended = NULL WHERE id = 'ses_1'`,
		"claim moved":       `UPDATE session_v2 SET time_suspended = iif(id = 'ses_1', NULL, 1790000000000) WHERE id IN ('ses_1', 'ses_idle')`,
		"resumed meanwhile": `UPDATE session_v2 SET resume_attempts = 4 WHERE id = 'ses_1'`,
		"session deleted":   `DELETE FROM session_v2 WHERE id = 'ses_2'`,
		"new claim":         `UPDATE session_v2 SET time_suspended = 5 WHERE id = 'ses_idle'`,
		"new job":           `INSERT INTO kv VALUES ('job.background/n9', '{}', 0, 0)`,
		"job gone":          `DELETE FROM kv WHERE key = 'job.background/n1'`,
		"job ended":         `UPDATE kv SET value = replace(value, 'running', 'completed') WHERE key = 'job.background/n2'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d, sweep := parked(t)
			s.exec(change)
			before := s.standing()
			if err := d.Clear(t.Context(), sweep); !errors.Is(err, restart.ErrChanged) {
				t.Error("got", err)
			}
			if after := s.standing(); after != before {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
}

// What the caller gives counts, not what was read.
func TestClearRefusesAnotherSetThanStands(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*restart.Sweep){
		"another time":     func(s *restart.Sweep) { s.Claims[0].ClaimedAt++ },
		"other attempts":   func(s *restart.Sweep) { s.Claims[0].Attempts++ },
		"a claim less":     func(s *restart.Sweep) { s.Claims = s.Claims[1:] },
		"another job":      func(s *restart.Sweep) { s.Jobs[0].Key += "x" },
		"another content":  func(s *restart.Sweep) { s.Jobs[0].Raw = s.Jobs[1].Raw },
		"the same, a copy": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d, sweep := parked(t)
			sweep = restart.Sweep{Claims: slices.Clone(sweep.Claims), Jobs: slices.Clone(sweep.Jobs)}
			want, left := error(nil), "0 claims, 0 jobs"
			if change != nil {
				change(&sweep)
				want, left = restart.ErrChanged, "2 claims, 2 jobs"
			}
			if err := d.Clear(t.Context(), sweep); !errors.Is(err, want) {
				t.Error("got", err)
			}
			if got := s.standing(); got != left {
				t.Error(got)
			}
		})
	}
}

func TestClearDespiteOtherWrites(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	s.exec(`UPDATE session_v2 SET title = 'another'`)
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if got := s.standing(); got != "0 claims, 0 jobs" {
		t.Error(got)
	}
}

// A large set is cleared in several transactions; a write between two of them is noticed.
func TestClearInPartsRefusesWhatChangedBetween(t *testing.T) {
	t.Parallel()
	s, d := fill(t, clearedAtOnce+500)
	s.claim(1)
	sweep, err := d.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.budget = time.Minute
	c, err := d.beginClearance(t.Context(), sweep)
	if err != nil {
		t.Fatal(err)
	}
	if !c.compared {
		t.Error("all is compared once more, under the lock")
	}
	if err := c.transact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.standing(); got != "500 claims, 500 jobs" {
		t.Fatal(got)
	}
	s.exec(`UPDATE session_v2 SET time_suspended = 7 WHERE time_suspended IS NULL AND rowid % 100 = 0`)
	if err := c.transact(t.Context()); !errors.Is(err, restart.ErrChanged) {
		t.Error("got", err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
	sweep, err = d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) <= 500 {
		t.Fatal(len(sweep.Claims), err)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if got := s.standing(); got != "0 claims, 0 jobs" {
		t.Error(got)
	}
}

func TestClearOfNothingStillLooks(t *testing.T) {
	t.Parallel()
	s, d, _ := parked(t)
	if err := d.Clear(t.Context(), restart.Sweep{}); !errors.Is(err, restart.ErrChanged) {
		t.Error("got", err)
	}
	if got := s.standing(); got != "2 claims, 2 jobs" {
		t.Error(got)
	}
}

// The database is locked by another process while we park: all or none, and said.
func TestClearWaitsForTheLock(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	release := holdLock(t, s.path)

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := d.Clear(short, sweep)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "locked by another process") || !strings.Contains(err.Error(), s.path) {
		t.Error("while locked:", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if got := s.standing(); got != "2 claims, 2 jobs" {
		t.Error(got)
	}

	done := make(chan error, 1)
	go func() { done <- d.Clear(t.Context(), sweep) }()
	select {
	case err := <-done:
		t.Fatal("it didn't wait:", err)
	case <-time.After(250 * time.Millisecond): // longer than one try
	}
	release()
	if err := <-done; err != nil {
		t.Error("after the release:", err)
	}
	if got := s.standing(); got != "0 claims, 0 jobs" {
		t.Error(got)
	}
}

// What takes longer than the server may be frozen is undone.
func TestClearKeepsItsBudget(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	s.exec(`CREATE TRIGGER slow AFTER DELETE ON kv BEGIN
		INSERT INTO kv SELECT 'n' || max(x), '', 0, 0 FROM (
		  WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000) SELECT x FROM n);
		END`)
	err := d.Clear(t.Context(), sweep)
	if err == nil || errors.Is(err, restart.ErrChanged) || !strings.Contains(err.Error(), "250ms") {
		t.Error("got", err)
	}
	if held := d.LastHeld(); held < lockBudget || held > 4*lockBudget {
		t.Errorf("held for %v", held)
	}
	if got := s.standing(); got != "2 claims, 2 jobs" {
		t.Error(got)
	}
	s.exec(`UPDATE session_v2 SET title = 'the lock is free'`)
}

func TestClearStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Clear(ctx, sweep); !errors.Is(err, context.Canceled) {
		t.Error("got", err)
	}
	if got := s.standing(); got != "2 claims, 2 jobs" {
		t.Error(got)
	}
}

// A large WAL isn't copied back while we hold the lock, nor when we let go.
func TestClearLeavesTheWALAlone(t *testing.T) {
	t.Parallel()
	s, d, sweep := parked(t)
	s.exec(`PRAGMA wal_autocheckpoint = 0`)
	s.exec(`CREATE TABLE filler AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000) SELECT x, zeroblob(4000) FROM n`)
	size := func(suffix string) int64 {
		info, err := os.Stat(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	s.db.Close() // the server is gone; it couldn't check-point, because we read
	file, wal := size(""), size("-wal")
	if wal < 4<<20 {
		t.Fatalf("the WAL has only %d bytes", wal)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if got := size(""); got != file {
		t.Errorf("the file grew from %d to %d bytes", file, got)
	}
	if got := size("-wal"); got < wal {
		t.Errorf("the WAL shrank from %d to %d bytes", wal, got)
	}
}

// fill gives a database n sessions of the usual size.
func fill(t testing.TB, n int) (*server, *Database) {
	t.Helper()
	s := newServer(t, KindClaims)
	s.session("ses_0", "")
	s.exec(`INSERT INTO session_v2 (id, project_id, slug, directory, title, version, time_created, time_updated, permission)
		WITH RECURSIVE n(x) AS (SELECT 2 UNION ALL SELECT x + 1 FROM n WHERE x < ?)
		SELECT printf('ses_dd32f2626ffe%012d', x), 'p', 's', '/home/user/proj', 'Title', '2', 1, 2, hex(zeroblob(200)) FROM n`, n)
	return s, s.open(V2)
}

// claim claims one session of every so many, and gives each fifth of those a job.
func (s *server) claim(every int) {
	s.t.Helper()
	s.exec(`UPDATE session_v2 SET time_suspended = 1790000000000 WHERE rowid % ? = 0`, every)
	s.exec(`INSERT INTO kv SELECT 'job.background/' || id, ?, 0, 0 FROM session_v2 WHERE time_suspended IS NOT NULL AND rowid / ? % 5 = 0`, agentJob, every)
}

// The budget is lifted, because the race detector makes SQLite fifteen times
// slower; the benchmark shows for how long the lock is held at a time.
func TestTenThousandClaims(t *testing.T) {
	t.Parallel()
	const n = 10_000
	s, d := fill(t, n)
	s.claim(1)
	d.budget = time.Minute
	sweep, err := d.Sweep(t.Context())
	if err != nil || len(sweep.Claims) != n || len(sweep.Jobs) != n/5 {
		t.Fatal(len(sweep.Claims), len(sweep.Jobs), err)
	}
	if err := d.Clear(t.Context(), sweep); err != nil {
		t.Fatal(err)
	}
	if got := s.standing(); got != "0 claims, 0 jobs" {
		t.Error(got)
	}
	t.Logf("held the lock for %v", d.LastHeld())
}

// 1,000 claims scattered over twice as many sessions, and 200 jobs.
func BenchmarkPark1000(b *testing.B) { benchmarkPark(b, 1000) }

func BenchmarkPark10000(b *testing.B) { benchmarkPark(b, 10_000) }

func benchmarkPark(b *testing.B, n int) {
	s, d := fill(b, 2*n)
	d.budget = time.Minute // measured here, kept elsewhere
	var held time.Duration
	for b.Loop() {
		b.StopTimer()
		s.claim(2)
		b.StartTimer()
		sweep, err := d.Sweep(b.Context())
		if err != nil || len(sweep.Claims) != n {
			b.Fatal(len(sweep.Claims), err)
		}
		if err := d.Clear(b.Context(), sweep); err != nil {
			b.Fatal(err)
		}
		held += d.LastHeld()
	}
	b.ReportMetric(float64(held.Microseconds())/float64(b.N)/1000, "ms-held/op")
}
