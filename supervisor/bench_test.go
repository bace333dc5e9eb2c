package supervisor

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"intermission/platform"
)

// BenchmarkPark measures from the kill of a server with 1,000 claims until all of
// them are in the ledger, on disk, and out of the server's database: what a
// foreign starter would have to beat. The death of the process is part of it.
func BenchmarkPark(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		parked := make(chan time.Time, 16)
		bed := newBed(b, nil)
		bed.o.Log = slog.New(parkedAt{parked})
		bed.start()
		st := bed.phase(Running)
		claim(b, filepath.Join(bed.dir, ".local/share/opencode/opencode.db"), 1000)
		id, err := platform.Identify(st.Server.PID)
		if err != nil {
			b.Fatal(err)
		}
		for len(parked) > 0 {
			<-parked
		}
		b.StartTimer()
		killed := time.Now()
		if err := id.Signal(platform.Kill); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64((<-parked).Sub(killed).Microseconds())/1000, "ms-to-parked")
		b.StopTimer()
		if p, err := bed.client.Pending(b.Context()); err != nil || len(p.Pending) != 1000 {
			b.Fatalf("%d pending, %v", len(p.Pending), err)
		}
		bed.stop()
		b.StartTimer()
	}
}

// claim gives a running server n sessions with a claim, as if a turn of each were in flight.
func claim(b testing.TB, path string, n int) {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	_, err = db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO session_v2 (id, project_id, slug, directory, title, version, time_created, time_updated, time_suspended)
		SELECT printf('ses_bench%05d', i), (SELECT id FROM project LIMIT 1), 's', '/tmp', 'Session ' || i, '2.2.0', ?, ?, ? FROM n`,
		n, time.Now().UnixMilli(), time.Now().UnixMilli(), time.Now().UnixMilli())
	if err != nil {
		b.Fatal(err)
	}
}

// parkedAt tells when the claims were parked.
type parkedAt struct{ at chan time.Time }

func (p parkedAt) Enabled(context.Context, slog.Level) bool { return true }
func (p parkedAt) WithAttrs([]slog.Attr) slog.Handler       { return p }
func (p parkedAt) WithGroup(string) slog.Handler            { return p }
func (p parkedAt) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "nothing is left that a server would resume" {
		p.at <- r.Time
	}
	return nil
}
