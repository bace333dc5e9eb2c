package restart

import (
	"context"
	"errors"
	"fmt"

	"intermission/restart/faultpoint"
)

// parkAttempts bounds how often a database that changes under us is swept again.
const parkAttempts = 5

// ParkOptions tell Park what is known of the incarnation that has ended.
type ParkOptions struct {
	Cause       Cause  // CauseShutdown when a graceful stop was under way, else CauseCrash
	At          int64  // when the incarnation ended (Unix ms); 0 means now
	Incarnation string // the incarnation that was watched; "" means those that BeginIncarnation began
	Since       int64  // when it started (Unix ms); 0 means what BeginIncarnation was told
	Generation  string // of the database; "" means that of the incarnation
	Database    string // path of the database; "" means that of the incarnation
	// Cleared, if not nil, is called as soon as nothing stands in the database
	// any more that a server would resume: its lock may be released then. Park may
	// still fail afterwards.
	Cleared func()
	// Undescribed leaves the descriptions to a Describe by the caller: nothing waits for them.
	Undescribed bool
}

// Parked is what Park did.
type Parked struct {
	Claims    int     // claims that stood in the server's database
	Jobs      int     // background jobs that stood in it
	Suspended int     // suspensions made
	Settled   int     // suspensions of the ended incarnation that had ended by themselves
	Warnings  []error // what did not work and isn't needed for safety: marks and descriptions
}

// Park moves what the server would resume by itself into the ledger, and decides
// what the claims of the incarnation that ended have become. Only while no
// server runs. After an error no server may be started.
//
// What is in a hurry comes first: take in (durable), clear, Cleared. Then what
// was taken in becomes suspensions, and last the rest of the incarnation is
// decided by the server's database. It can be broken off anywhere and done
// again, or be gone on with by Open: one claim makes one suspension.
func (l *Ledger) Park(ctx context.Context, db Database, opts ParkOptions) (Parked, error) {
	if opts.At == 0 {
		opts.At = l.now().UnixMilli()
	}
	var done Parked
	err := l.takeOut(ctx, db, opts, &done)
	faultpoint.At(faultpoint.ParkCleared)
	if err == nil && opts.Cleared != nil {
		opts.Cleared()
	}
	faultpoint.At(faultpoint.ParkReleased)
	// Also when it could not be cleared, and when time is up: what was taken in must be seen.
	err = errors.Join(err, l.digest(context.WithoutCancel(ctx), &done))
	faultpoint.At(faultpoint.ParkDigested)
	if err == nil {
		opts.Database, err = l.end(ctx, db, opts, &done)
	}
	if err != nil {
		return done, fmt.Errorf("cannot park: %w", err)
	}
	faultpoint.At(faultpoint.ParkEnded)
	if err := l.mark(ctx, db, opts.Database); err != nil {
		done.Warnings = append(done.Warnings, err)
	}
	if opts.Undescribed {
		return done, nil
	}
	if err := l.Describe(ctx, db); err != nil {
		done.Warnings = append(done.Warnings, err)
	}
	return done, nil
}

// takeOut takes what the server would resume out of its database, each row only
// after it was taken in.
func (l *Ledger) takeOut(ctx context.Context, db Database, opts ParkOptions, done *Parked) error {
	for attempt := 1; ; attempt++ {
		sweep, err := db.Sweep(ctx)
		faultpoint.At(faultpoint.ParkSwept)
		if err != nil || len(sweep.Claims)+len(sweep.Jobs) == 0 {
			return err
		}
		if err := l.takeIn(ctx, sweep, opts); err != nil {
			return err
		}
		faultpoint.At(faultpoint.ParkTakenIn)
		done.Claims, done.Jobs = len(sweep.Claims), len(sweep.Jobs)
		if err = db.Clear(ctx, sweep); !errors.Is(err, ErrChanged) || attempt == parkAttempts {
			return err
		}
	}
}

// end decides about the sessions of the incarnation that ended whose claim did
// not stand in its database, and ends it. It gives the path of the database.
func (l *Ledger) end(ctx context.Context, db Database, opts ParkOptions, done *Parked) (database string, err error) {
	var open []string
	var p *parking
	err = l.read(ctx, func(t *tx) (err error) {
		if p, err = t.parking(opts, done, "WHERE ended_at IS NULL"); err == nil {
			open, err = t.openIn(p.opts.Database, unconfirmed)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	var inFlight []string
	if len(p.watched) > 0 && p.opts.Since != 0 {
		if inFlight, err = db.InFlight(ctx, p.opts.Since); err != nil {
			return "", err
		}
	}
	var fates map[string]Fate
	if asked := append(open, inFlight...); len(asked) > 0 {
		if fates, err = l.fates(ctx, db, p.opts.Database, asked); err != nil {
			return "", err
		}
	}
	return p.opts.Database, l.change(ctx, func(t *tx) error {
		p.tx = t
		return p.end(inFlight, fates)
	})
}

// parking begins to decide about the end of the incarnations that where finds; it
// completes the options by what the ledger holds of them.
func (t *tx) parking(opts ParkOptions, done *Parked, where string, args ...any) (*parking, error) {
	p := &parking{tx: t, opts: opts, watched: map[string]bool{}, done: done, rows: map[string]*session{}, was: map[string]session{}}
	list, err := t.incarnations(where+" ORDER BY started_at", args...)
	if err != nil {
		return nil, err
	}
	known, err := t.incarnations("WHERE id = ?", opts.Incarnation)
	if err != nil {
		return nil, err
	}
	for _, i := range append(known, list...) {
		if p.opts.Database == "" {
			p.opts.Database = i.Database
		}
	}
	if opts.Incarnation != "" && len(known) == 0 {
		p.watched[opts.Incarnation] = true
	}
	for _, i := range list {
		if i.Database != p.opts.Database {
			continue
		}
		p.watched[i.ID] = true
		if p.opts.Incarnation == "" {
			p.opts.Incarnation = i.ID
		}
		if p.opts.Generation == "" {
			p.opts.Generation = i.Generation
		}
		if p.opts.Since == 0 {
			p.opts.Since = i.StartedAt
		}
	}
	running, err := t.running()
	if err == nil && running != nil && running.Database == p.opts.Database && !p.watched[running.ID] {
		p.successor = running.ID
	}
	return p, err
}

const (
	// openIDs finds live claims, suspensions of incarnations that have not ended, and
	// consents that are being carried out; each part by an index of its own.
	openIDs = `SELECT id FROM session WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = ''
	UNION ALL SELECT id FROM session WHERE time_suspended IS NOT NULL AND incarnation IN (SELECT id FROM incarnation WHERE ended_at IS NULL)
	UNION ALL SELECT id FROM session WHERE phase <> '' AND phase IN ('queued', 'resuming')`
	// unconfirmed leaves out the suspensions that stood in the server's database.
	unconfirmed = ` AND NOT (confirmed AND time_suspended IS NOT NULL)`
)

// openIn gives the open sessions of one database; and narrows them.
func (t *tx) openIn(database, and string) ([]string, error) {
	rows, err := t.QueryContext(t.ctx, "SELECT id FROM session WHERE database IN (?, '') AND id IN ("+openIDs+")"+and, database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		list = append(list, id)
	}
	return list, rows.Err()
}
