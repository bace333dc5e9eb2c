package opencode

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"intermission/restart"
)

// lockBudget is for how long Clear may hold the write lock: a server on this
// file waits as long, the whole of it.
const lockBudget = 250 * time.Millisecond

// Clear implements restart.Database. The set must be whole: it is ErrChanged
// too when the database holds a claim or a job that s doesn't. While another
// process has the write lock it tries again until ctx ends; once it has the
// lock itself, it is done or has undone everything within 250 ms. The server's
// count of attempts stays as it is.
func (d *Database) Clear(ctx context.Context, s restart.Sweep) error {
	d.clearing.Lock()
	defer d.clearing.Unlock()
	var found shape
	err := d.read(ctx, func(q querier, now shape) error {
		found = now
		return whole(ctx, q, now, s) // so that the lock isn't taken for nothing
	})
	if err != nil || len(s.Claims)+len(s.Jobs) == 0 {
		return err
	}
	if err := d.clear(ctx, found, s); err != nil {
		if errors.Is(err, restart.ErrChanged) {
			return err
		}
		return fmt.Errorf("cannot park the sessions of the server's database %s: %w", d.path, err)
	}
	return nil
}

// whole is ErrChanged when the database doesn't hold as many claims and jobs as s.
func whole(ctx context.Context, q querier, found shape, s restart.Sweep) error {
	var claims, jobs int
	if found.claim != "" {
		count := fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s IS NOT NULL`, found.sessions, found.claim)
		if err := q.QueryRowContext(ctx, count).Scan(&claims); err != nil {
			return err
		}
	}
	if len(found.jobs) > 0 {
		count := `SELECT count(*) FROM kv WHERE key >= ? AND key < ?`
		if err := q.QueryRowContext(ctx, count, jobPrefix, jobEnd).Scan(&jobs); err != nil {
			return err
		}
	}
	if claims != len(s.Claims) || jobs != len(s.Jobs) {
		return restart.ErrChanged
	}
	return nil
}

// clear works on a connection of its own, which lives only as long.
func (d *Database) clear(ctx context.Context, found shape, s restart.Sweep) (err error) {
	claims, jobs, err := rows(s)
	if err != nil {
		return err
	}
	// No checkpoint at our commit: it would copy the server's whole WAL back while
	// we hold the lock. synchronous is NORMAL as it is for the server: a clear that
	// a power failure undoes is found again by the sweep before the next start.
	// 100 ms a try keeps the wait for the lock answerable to ctx.
	pool, err := sql.Open("sqlite", dsn(d.path, "rw",
		"busy_timeout(100)", "wal_autocheckpoint(0)", "synchronous(NORMAL)", "cache_size(-2000)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	conn, err := begin(ctx, pool)
	if err != nil {
		return err
	}
	defer conn.Close()

	began := time.Now()
	held, cancel := context.WithTimeoutCause(ctx, lockBudget,
		fmt.Errorf("not done after %v of holding its lock; undone", lockBudget))
	defer cancel()
	err = take(held, conn, found, s, claims, jobs)
	if err == nil {
		err = held.Err() // last exit: a commit that was interrupted might still have happened
	}
	end := `COMMIT`
	if err != nil {
		end = `ROLLBACK`
	}
	_, ended := conn.ExecContext(context.WithoutCancel(ctx), end)
	d.lastHeld.Store(int64(time.Since(began)))
	switch {
	case err == nil && ended != nil:
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return ended
	case held.Err() != nil && err != nil:
		return context.Cause(held)
	}
	return err
}

// begin waits for the write lock, in short tries until ctx ends.
func begin(ctx context.Context, pool *sql.DB) (*sql.Conn, error) {
	for {
		conn, err := pool.Conn(ctx) // this too reads the file
		if err == nil {
			if _, err = conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err == nil {
				return conn, nil
			}
			_ = conn.Close()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("it is locked by another process: %w", context.Cause(ctx))
		}
		if !busy(err) {
			return nil, err
		}
	}
}

// rows gives the claims as JSON [[id, time, attempts], …] and the jobs as [[key, value], …].
func rows(s restart.Sweep) (claims, jobs string, err error) {
	c := make([][3]any, len(s.Claims))
	for i, claim := range s.Claims {
		c[i] = [3]any{claim.Session, claim.ClaimedAt, claim.Attempts}
	}
	j := make([][2]string, len(s.Jobs))
	for i, job := range s.Jobs {
		var row struct{ Value string }
		if err := json.Unmarshal(job.Raw, &row); err != nil {
			return "", "", fmt.Errorf("background job %s: %w", job.Key, err)
		}
		j[i] = [2]string{job.Key, row.Value}
	}
	claimed, err := json.Marshal(c)
	if err != nil {
		return "", "", err
	}
	keyed, err := json.Marshal(j)
	return string(claimed), string(keyed), err
}

// take clears the claims and deletes the jobs, each in one statement that
// touches only rows that are as they were read, and counts.
func take(ctx context.Context, conn *sql.Conn, found shape, s restart.Sweep, claims, jobs string) error {
	if err := whole(ctx, conn, found, s); err != nil {
		return err
	}
	if len(s.Claims) > 0 {
		set, same := found.claim+" = NULL", ""
		for _, column := range found.owner {
			set += fmt.Sprintf(`, "%s" = NULL`, column)
		}
		if found.attempts {
			same = `AND s.resume_attempts = r.value ->> 2`
		}
		if err := exactly(ctx, conn, len(s.Claims), fmt.Sprintf(
			`UPDATE %[1]s AS s SET %[2]s FROM json_each(?) r
			  WHERE s.id = r.value ->> 0 AND +s.%[3]s = r.value ->> 1 %[4]s`,
			found.sessions, set, found.claim, same), claims); err != nil {
			return err
		}
	}
	if len(s.Jobs) > 0 {
		return exactly(ctx, conn, len(s.Jobs),
			`DELETE FROM kv WHERE key IN (
			   SELECT k.key FROM json_each(?) r CROSS JOIN kv k ON k.key = r.value ->> 0 WHERE k.value = r.value ->> 1)`, jobs)
	}
	return nil
}

// exactly runs a statement that must change n rows; otherwise it is ErrChanged.
func exactly(ctx context.Context, conn *sql.Conn, n int, statement, rows string) error {
	result, err := conn.ExecContext(ctx, statement, rows)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed != int64(n) {
		err = restart.ErrChanged
	}
	return err
}
