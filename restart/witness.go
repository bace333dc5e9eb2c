package restart

import (
	"context"
	"math"
)

// outcomeAbsent is OutcomeGone where the database may be another than the one that
// the session was in: a disk that isn't mounted, a directory that was moved. It
// settles nothing.
const outcomeAbsent Outcome = -1

// witnesses bounds how many other sessions are asked for.
const witnesses = 50

// fates asks the database at path how sessions ended. That one is gone is believed
// only of a database that still holds another session that we knew when the
// suspension was made: one that came later may be of a new database.
func (l *Ledger) fates(ctx context.Context, db Database, path string, names []string) (map[string]Fate, error) {
	fates, err := db.Fates(ctx, names)
	if err != nil {
		return nil, err
	}
	var gone []string
	for id, f := range fates {
		if f.Outcome == OutcomeGone {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		return fates, nil
	}
	var made, known map[string]int64
	err = l.read(ctx, func(t *tx) (err error) {
		if made, err = t.madeAt(gone); err != nil {
			return err
		}
		var last int64
		for _, at := range made {
			last = max(last, at)
		}
		known, err = t.times(`SELECT id, time_known FROM session WHERE database = ? AND time_known <= ?
			AND id NOT IN (SELECT value FROM json_each(?)) ORDER BY max(time_seen, last_suspended) DESC LIMIT ?`, path, last, ids(gone), witnesses)
		return err
	})
	if err != nil {
		return nil, err
	}
	oldest, err := firstPresent(ctx, db, known)
	if err != nil {
		return nil, err
	}
	for _, id := range gone {
		if at, ok := made[id]; !ok || oldest > at {
			fates[id] = Fate{Outcome: outcomeAbsent}
		}
	}
	return fates, nil
}

// madeAt tells when the suspension of each session was made, by our clock; of a
// live claim, whose server has had its database open, that is whenever.
func (t *tx) madeAt(list []string) (map[string]int64, error) {
	return t.times(`SELECT s.id, CASE WHEN s.time_suspended IS NULL AND s.consumed = 0 THEN ? ELSE coalesce(
			(SELECT max(j.time) FROM journal j WHERE j.session = s.id AND j.what = 'suspended'), 0) END
		FROM session s WHERE s.id IN (SELECT value FROM json_each(?))`, int64(math.MaxInt64-1), ids(list))
}

// firstPresent gives the least time of the sessions that the database holds.
func firstPresent(ctx context.Context, db Database, known map[string]int64) (int64, error) {
	oldest := int64(math.MaxInt64)
	if len(known) == 0 {
		return oldest, nil
	}
	var list []string
	for id := range known {
		list = append(list, id)
	}
	fates, err := db.Fates(ctx, list)
	for id, f := range fates {
		if f.Outcome != OutcomeGone {
			oldest = min(oldest, known[id])
		}
	}
	return oldest, err
}

func (t *tx) times(query string, args ...any) (map[string]int64, error) {
	rows, err := t.QueryContext(t.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	times := map[string]int64{}
	for rows.Next() {
		var id string
		var at int64
		if err := rows.Scan(&id, &at); err != nil {
			return nil, err
		}
		times[id] = at
	}
	return times, rows.Err()
}
