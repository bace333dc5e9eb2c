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
		if len(s.Claims)+len(s.Jobs) > 0 && now.kind != KindAbsent {
			return nil
		}
		return d.unchanged(ctx, q, now, s) // nothing to write: the lock isn't needed
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

// clear works on a connection of its own, which lives only as long.
func (d *Database) clear(ctx context.Context, found shape, s restart.Sweep) (err error) {
	// No checkpoint at our commit: it would copy the server's whole WAL back while
	// we hold the lock. synchronous is NORMAL as it is for the server: a clear that
	// a power failure undoes is found again by the sweep before the next start.
	// 100 ms a try keeps the wait for the lock answerable to ctx. The cache, which
	// goes with the connection, lets some thousand claims be changed without spilling.
	pool, err := sql.Open("sqlite", dsn(d.path, "rw", 4096,
		"busy_timeout(100)", "wal_autocheckpoint(0)", "synchronous(NORMAL)"))
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
	held, cancel := context.WithTimeoutCause(ctx, d.budget,
		fmt.Errorf("not done after %v of holding its lock; undone", d.budget))
	defer cancel()
	err = d.take(held, conn, found, s)
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

// take makes sure that s is exactly what stands there, and then takes all of it,
// claims and jobs in one statement each.
func (d *Database) take(ctx context.Context, conn *sql.Conn, found shape, s restart.Sweep) error {
	if err := d.unchanged(ctx, conn, found, s); err != nil {
		return err
	}
	if len(s.Claims) > 0 {
		set := found.claim + " = NULL"
		for _, column := range found.owner {
			set += fmt.Sprintf(`, "%s" = NULL`, column)
		}
		// OR ROLLBACK saves the copies of pages that undoing only this statement would need.
		if err := exactly(ctx, conn, len(s.Claims), fmt.Sprintf(
			`UPDATE OR ROLLBACK %s SET %s WHERE %s IS NOT NULL`, found.sessions, set, found.claim)); err != nil {
			return err
		}
	}
	if len(s.Jobs) > 0 {
		return exactly(ctx, conn, len(s.Jobs), `DELETE FROM kv WHERE key >= ? AND key < ?`, jobPrefix, jobEnd)
	}
	return nil
}

// unchanged is restart.ErrChanged unless the claims and jobs of s are exactly those
// of the database: as many, of the same time and attempts, and of the same value.
func (d *Database) unchanged(ctx context.Context, q querier, found shape, s restart.Sweep) error {
	claims := make(map[string]restart.Claim, len(s.Claims))
	for _, c := range s.Claims {
		claims[c.Session] = c
	}
	values := make(map[string]string, len(s.Jobs))
	for _, j := range s.Jobs {
		var row struct {
			Value string `json:"value"`
		}
		if err := json.Unmarshal(j.Raw, &row); err != nil {
			return fmt.Errorf("background job %s: %w", j.Key, err)
		}
		values[j.Key] = row.Value
	}
	var now int
	err := d.eachClaim(ctx, q, found, "''", func(c restart.Claim, _ string) error {
		if was, ok := claims[c.Session]; !ok || was.ClaimedAt != c.ClaimedAt || was.Attempts != c.Attempts {
			return restart.ErrChanged
		}
		now++
		return nil
	})
	if err != nil {
		return err
	}
	err = eachJob(ctx, q, found, "''", func(key, value, _ string) error {
		if was, ok := values[key]; !ok || was != value {
			return restart.ErrChanged
		}
		now++
		return nil
	})
	if err == nil && now != len(s.Claims)+len(s.Jobs) {
		err = restart.ErrChanged
	}
	return err
}

// exactly runs a statement that must change n rows; otherwise it is ErrChanged.
func exactly(ctx context.Context, conn *sql.Conn, n int, statement string, args ...any) error {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed != int64(n) {
		err = restart.ErrChanged
	}
	return err
}
