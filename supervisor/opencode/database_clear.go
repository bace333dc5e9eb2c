package opencode

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"intermission/restart"
	"intermission/restart/faultpoint"
)

// lockBudget is for how long Clear may hold the write lock: a server on this
// file waits as long, the whole of it.
const lockBudget = 250 * time.Millisecond

// clearedAtOnce bounds the claims and jobs that one transaction takes. It is done
// with them in a tenth of lockBudget.
const clearedAtOnce = 2000

// Clear implements restart.Database. The set must be whole: it is ErrChanged
// too when the database holds a claim or a job that s doesn't. More than 2,000
// rows are cleared in several transactions, between which others may write; if
// one has, it is ErrChanged, and a part of s is cleared. While another process has
// the write lock it tries again until ctx ends; once it has the lock itself, a
// transaction is done or undone within 250 ms. The server's count of attempts
// stays as it is.
func (d *Database) Clear(ctx context.Context, s restart.Sweep) error {
	d.clearing.Lock()
	defer d.clearing.Unlock()
	if len(s.Claims)+len(s.Jobs) == 0 || d.Kind() == KindAbsent {
		// Nothing to write: the lock isn't needed.
		return d.read(ctx, func(q querier, found shape) error { return d.unchanged(ctx, q, found, s) })
	}
	if err := d.clear(ctx, s); err != nil {
		if errors.Is(err, restart.ErrChanged) {
			return err
		}
		return fmt.Errorf("cannot park the sessions of the server's database %s: %w", d.path, restart.ExplainServers(d.path, err))
	}
	return nil
}

// clearance is one Clear under way, on a connection of its own, which lives only as long.
type clearance struct {
	*Database
	pool         *sql.DB
	conn         *sql.Conn
	found        shape
	sweep        restart.Sweep
	claims, jobs int   // still to be taken
	version      int64 // PRAGMA data_version of conn for which sweep is known to be what stands there
	compared     bool  // it is known
}

func (d *Database) clear(ctx context.Context, s restart.Sweep) (err error) {
	c, err := d.beginClearance(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	d.lastHeld.Store(0)
	for c.claims+c.jobs > 0 {
		if err := c.transact(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *Database) beginClearance(ctx context.Context, s restart.Sweep) (*clearance, error) {
	// No checkpoint at our commit: it would copy the server's whole WAL back while
	// we hold the lock. synchronous is NORMAL as it is for the server: a clear that
	// a power failure undoes is found again by the sweep before the next start.
	// 100 ms a try keeps the wait for the lock answerable to ctx. The cache, which
	// goes with the connection, lets some thousand claims be changed without spilling.
	pool, err := sql.Open("sqlite", dsn(d.path, "rw", 4096,
		"busy_timeout(100)", "wal_autocheckpoint(0)", "synchronous(NORMAL)"))
	if err != nil {
		return nil, err
	}
	c := &clearance{Database: d, pool: pool, sweep: s, claims: len(s.Claims), jobs: len(s.Jobs)}
	err = patiently(ctx, func() (err error) {
		c.conn, err = pool.Conn(ctx) // this too reads the file
		return err
	})
	if err == nil {
		err = c.compareEarly(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *clearance) close() error {
	var err error
	if c.conn != nil {
		err = c.conn.Close()
	}
	return errors.Join(err, c.pool.Close())
}

// compareEarly spares the comparison under the lock, which takes longer than
// the rest: nobody has committed since Sweep has read the very same. Versions of two
// connections can't be compared, so that of conn is taken first.
func (c *clearance) compareEarly(ctx context.Context) error {
	version, err := dataVersion(ctx, c.conn)
	if busy(err) {
		version, err = -1, nil // then under the lock
	}
	if err != nil {
		return err
	}
	c.version = version
	return c.read(ctx, func(q querier, found shape) error {
		c.found = found
		if q == nil {
			return restart.ErrChanged // the file is gone
		}
		now, err := dataVersion(ctx, q)
		c.compared = err == nil && version >= 0 && c.swept.is(c.sweep, now)
		c.swept = swept{}
		return err
	})
}

// transact takes as much as one transaction may.
func (c *clearance) transact(ctx context.Context) error {
	err := patiently(ctx, func() error {
		_, err := c.conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
		return err
	})
	if err != nil {
		return err
	}
	faultpoint.At(faultpoint.LockTaken)
	began := time.Now()
	held, cancel := context.WithTimeoutCause(ctx, c.budget,
		fmt.Errorf("not done after %v of holding its lock; undone", c.budget))
	defer cancel()
	err = c.take(held)
	if err == nil {
		err = held.Err() // last exit: a commit that was interrupted might still have happened
	}
	end := `COMMIT`
	if err != nil {
		end = `ROLLBACK`
	}
	_, ended := c.conn.ExecContext(context.WithoutCancel(ctx), end)
	c.lastHeld.Store(max(c.lastHeld.Load(), int64(time.Since(began))))
	faultpoint.At(faultpoint.LockLetGo)
	switch {
	case err == nil && ended != nil:
		_, _ = c.conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`)
		return ended
	case held.Err() != nil && err != nil:
		return context.Cause(held)
	}
	return err
}

// take makes sure that what is left of the sweep is exactly what stands there,
// and then takes as much as may be, claims and jobs in one statement each.
func (c *clearance) take(ctx context.Context) error {
	version, err := dataVersion(ctx, c.conn)
	if err != nil {
		return err
	}
	switch {
	case c.compared && version == c.version:
	case c.claims+c.jobs < len(c.sweep.Claims)+len(c.sweep.Jobs):
		return restart.ErrChanged // somebody has written between two transactions
	default:
		if err := c.unchanged(ctx, c.conn, c.found, c.sweep); err != nil {
			return err
		}
		c.version, c.compared = version, true
	}
	claims := min(c.claims, clearedAtOnce)
	if claims > 0 {
		if err := c.takeClaims(ctx, claims); err != nil {
			return err
		}
		c.claims -= claims
	}
	jobs := min(c.jobs, clearedAtOnce-claims)
	if jobs == 0 {
		return nil
	}
	c.jobs -= jobs
	return exactly(ctx, c.conn, jobs,
		`DELETE FROM kv WHERE key IN (SELECT key FROM kv WHERE key >= ? AND key < ? LIMIT ?)`, jobPrefix, jobEnd, jobs)
}

func (c *clearance) takeClaims(ctx context.Context, n int) error {
	set := c.found.claim + " = NULL"
	for _, column := range c.found.owner {
		set += fmt.Sprintf(`, "%s" = NULL`, column)
	}
	which := c.found.claim + " IS NOT NULL"
	if n < c.claims {
		which = fmt.Sprintf("id IN (SELECT id FROM %s WHERE %s LIMIT %d)", c.found.sessions, which, n)
	}
	// OR ROLLBACK saves the copies of pages that undoing only this statement would need.
	return exactly(ctx, c.conn, n, fmt.Sprintf(`UPDATE OR ROLLBACK %s SET %s WHERE %s`, c.found.sessions, set, which))
}

// patiently tries again, each time for as long as busy_timeout, while another
// process has the lock, until ctx ends.
func patiently(ctx context.Context, try func() error) error {
	var locked error
	for {
		err := try()
		if err == nil {
			return nil
		}
		if busy(err) {
			locked = err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), cmp.Or(locked, err))
		}
		if !busy(err) {
			return err
		}
	}
}

// swept is the last sweep, and the version of the database that it was read from.
type swept struct {
	sweep   restart.Sweep
	version int64
}

// is tells whether s is the very content of the last sweep, and version is its version.
func (was swept) is(s restart.Sweep, version int64) bool {
	return version == was.version &&
		slices.EqualFunc(s.Claims, was.sweep.Claims, func(a, b restart.Claim) bool {
			return a.Session == b.Session && a.ClaimedAt == b.ClaimedAt && a.Attempts == b.Attempts
		}) &&
		slices.EqualFunc(s.Jobs, was.sweep.Jobs, func(a, b restart.Job) bool {
			return a.Key == b.Key && bytes.Equal(a.Raw, b.Raw)
		})
}

// dataVersion changes when another connection than q's has committed.
func dataVersion(ctx context.Context, q querier) (version int64, err error) {
	err = q.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version)
	return version, err
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
