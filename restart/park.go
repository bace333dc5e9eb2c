package restart

import (
	"context"
	"errors"
	"fmt"
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
	// any more that a server would resume: its lock may be released then.
	Cleared func()
}

// Parked is what Park did.
type Parked struct {
	Claims    int     // claims moved out of the server's database
	Jobs      int     // background jobs moved out of it
	Suspended int     // suspensions made
	Settled   int     // suspensions of the ended incarnation that had ended by themselves
	Warnings  []error // what did not work and isn't needed for safety: marks and descriptions
}

// Park moves what the server would resume by itself into the ledger, and decides
// what the claims of the incarnation that ended have become. Only while no
// server runs. Everything is in the ledger before it is taken out of the
// database, so that it can be broken off anywhere and done again: one claim makes
// one suspension. After an error no server may be started.
func (l *Ledger) Park(ctx context.Context, db Database, opts ParkOptions) (Parked, error) {
	if opts.At == 0 {
		opts.At = l.now().UnixMilli()
	}
	var done Parked
	for attempt := 1; ; attempt++ {
		sweep, err := l.record(ctx, db, &opts, &done)
		if err != nil {
			return done, fmt.Errorf("cannot park: %w", err)
		}
		err = clearDatabase(ctx, db, sweep)
		if errors.Is(err, ErrChanged) && attempt < parkAttempts {
			continue
		}
		if err != nil {
			return done, fmt.Errorf("cannot park: %w", err)
		}
		done.Claims, done.Jobs = len(sweep.Claims), len(sweep.Jobs)
		break
	}
	if opts.Cleared != nil {
		opts.Cleared()
	}
	if err := l.cleared(ctx, opts.Database); err != nil {
		return done, fmt.Errorf("cannot park: %w", err)
	}
	if err := l.mark(ctx, db, opts.Database); err != nil {
		done.Warnings = append(done.Warnings, err)
	}
	if err := l.Describe(ctx, db); err != nil {
		done.Warnings = append(done.Warnings, err)
	}
	return done, nil
}

func clearDatabase(ctx context.Context, db Database, sweep Sweep) error {
	if len(sweep.Claims)+len(sweep.Jobs) == 0 {
		return nil
	}
	return db.Clear(ctx, sweep)
}

// record writes what stands in the database, and what follows from it, to the ledger.
func (l *Ledger) record(ctx context.Context, db Database, opts *ParkOptions, done *Parked) (Sweep, error) {
	sweep, err := db.Sweep(ctx)
	if err != nil {
		return sweep, err
	}
	w, err := l.watched(ctx, opts)
	if err != nil {
		return sweep, err
	}
	var inFlight []string
	if len(w.incarnations) > 0 && opts.Since != 0 {
		if inFlight, err = db.InFlight(ctx, opts.Since); err != nil {
			return sweep, err
		}
	}
	var fates map[string]Fate
	if ask := w.undecided(sweep); len(ask) > 0 {
		if fates, err = db.Fates(ctx, ask); err != nil {
			return sweep, err
		}
	}
	return sweep, l.change(ctx, func(t *tx) error {
		p := &parking{tx: t, opts: *opts, watched: w.incarnations, fates: fates, rows: map[string]*session{}}
		return p.run(sweep, inFlight, done)
	})
}

// watch is what the ledger holds of incarnations that have not been parked yet.
type watch struct {
	incarnations map[string]bool
	open         []string // sessions whose claim or consent the end of the server leaves undecided
}

// undecided gives the open sessions that the sweep says nothing about.
func (w watch) undecided(sweep Sweep) []string {
	claimed := make(map[string]bool, len(sweep.Claims))
	for _, c := range sweep.Claims {
		claimed[c.Session] = true
	}
	var list []string
	for _, id := range w.open {
		if !claimed[id] {
			list = append(list, id)
		}
	}
	return list
}

// watched reads the watch, and completes the options by it.
func (l *Ledger) watched(ctx context.Context, opts *ParkOptions) (watch, error) {
	w := watch{incarnations: map[string]bool{}}
	err := l.read(ctx, func(t *tx) error {
		list, err := t.incarnations("WHERE ended_at IS NULL ORDER BY started_at")
		if err != nil {
			return err
		}
		known, err := t.incarnations("WHERE id = ?", opts.Incarnation)
		if err != nil {
			return err
		}
		for _, i := range append(known, list...) {
			if opts.Database == "" {
				opts.Database = i.Database
			}
		}
		for _, i := range list {
			if i.Database != opts.Database {
				continue
			}
			if opts.Generation == "" {
				opts.Generation = i.Generation
			}
			if opts.Since == 0 {
				opts.Since = i.StartedAt
			}
			w.incarnations[i.ID] = true
		}
		if opts.Incarnation != "" && len(known) == 0 {
			w.incarnations[opts.Incarnation] = true
		}
		w.open, err = t.openIn(opts.Database)
		return err
	})
	return w, err
}

// openIDs finds live claims, suspensions of incarnations that have not ended, and
// consents that are being carried out; each part by an index of its own.
const openIDs = `SELECT id FROM session WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = ''
	UNION ALL SELECT id FROM session WHERE time_suspended IS NOT NULL AND incarnation IN (SELECT id FROM incarnation WHERE ended_at IS NULL)
	UNION ALL SELECT id FROM session WHERE phase <> '' AND phase IN ('queued', 'resuming')`

// openIn gives the open sessions of one database.
func (t *tx) openIn(database string) ([]string, error) {
	rows, err := t.QueryContext(t.ctx, "SELECT id FROM session WHERE database IN (?, '') AND id IN ("+openIDs+")", database)
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

// cleared records that what was parked is out of the server's database.
func (l *Ledger) cleared(ctx context.Context, database string) error {
	return l.change(ctx, func(t *tx) error {
		t.shown = true
		return t.exec("UPDATE parked SET cleared_at = ? WHERE cleared_at IS NULL AND database = ?", t.now, database)
	})
}
