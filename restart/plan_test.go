package restart

import (
	"strings"
	"testing"
)

// TestQueriesUseTheirIndexes keeps the statements that run at each event and
// each park from reading a ledger of years from end to end.
func TestQueriesUseTheirIndexes(t *testing.T) {
	t.Parallel()
	b := bare(t)
	for _, query := range []string{
		"SELECT mark FROM session WHERE id IN (" + openIDs + ")",
		"SELECT id, parent_id FROM session WHERE id IN (" + waitingIDs + ") AND described <> coalesce(time_suspended, consumed)",
		"SELECT id FROM session WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = ''",
		"SELECT id FROM session " + strings.Replace(pendingOf, "?", "'x'", 1),
		"SELECT key FROM parked WHERE key = 'x' AND claimed_at = 7 AND raw = 'y' AND kind = 'claim' AND database = 'z'",
		"SELECT key FROM parked WHERE kind = 'job' AND done_at IS NULL AND session = 'x'",
		"SELECT what FROM journal WHERE session = 'x' ORDER BY seq",
	} {
		rows, err := b.Ledger.db.Query("EXPLAIN QUERY PLAN " + query)
		b.must(err)
		for rows.Next() {
			var id, parent, unused int
			var detail string
			b.must(rows.Scan(&id, &parent, &unused, &detail))
			if (strings.Contains(detail, "SCAN session") || strings.Contains(detail, "SCAN parked") || strings.Contains(detail, "SCAN journal")) && !strings.Contains(detail, "INDEX session_") {
				t.Errorf("%s: %s", query, detail)
			}
		}
		b.must(rows.Err())
		b.must(rows.Close())
	}
}
