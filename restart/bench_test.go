package restart

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkPark1000 is what the ledger needs of the 20 ms between the server's
// exit and "parked", for 1,000 claims; strangers were never seen before, watched
// ones have a claim in the ledger.
func BenchmarkPark1000(b *testing.B) {
	for _, kind := range []string{"strangers", "watched"} {
		b.Run(kind, func(b *testing.B) {
			var total time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				l, db := thousand(b, kind == "watched", i)
				var cleared time.Duration
				b.StartTimer()
				start := time.Now()
				_, err := l.Park(b.Context(), db, ParkOptions{Cause: CauseCrash, At: 5000, Database: serverDB, Generation: "v2",
					Cleared: func() { cleared = time.Since(start) }})
				b.StopTimer()
				if err != nil || db.cleared != 1000 {
					b.Fatalf("%d cleared: %v", db.cleared, err)
				}
				total += cleared
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms-to-cleared")
		})
	}
}

func thousand(b *testing.B, watched bool, i int) (*Ledger, *fakeDatabase) {
	l, err := Open(filepath.Join(b.TempDir(), fmt.Sprintf("%d.db", i)), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	db := newDatabase()
	var active []string
	for n := range 1000 {
		c := claim(fmt.Sprintf("ses_%04d", n), int64(2000+n))
		active = append(active, c.Session)
		db.claims[c.Session] = c
	}
	if watched {
		if err := l.BeginIncarnation(b.Context(), Incarnation{ID: "inc1", Generation: "v2", Database: serverDB, StartedAt: begun}); err != nil {
			b.Fatal(err)
		}
		if err := l.Resync(b.Context(), active, 2000); err != nil {
			b.Fatal(err)
		}
	}
	return l, db
}
