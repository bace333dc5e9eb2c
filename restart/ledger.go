package restart

import (
	"context"
	"database/sql"
	"time"
)

// Ledger is our own record of who was at work and what a person decided. Its
// methods are safe for concurrent use.
type Ledger struct {
	db  *sql.DB
	now func() time.Time
}

// Incarnation is one run of the managed server.
type Incarnation struct {
	ID         string
	Generation string // v1 or v2
	Database   string // path of the server's database
	StartedAt  int64  // Unix ms, not later than the start of its first execution
}

// ParkOptions tell Park what is known of the incarnation that has ended.
type ParkOptions struct {
	Cause       Cause  // CauseShutdown when a graceful stop was under way, else CauseCrash
	At          int64  // when the incarnation ended (Unix ms); 0 means now
	Incarnation string // the incarnation that was watched; "" when none was
	Since       int64  // when it started (Unix ms); 0 means what BeginIncarnation said
	Generation  string // of the database; "" means that of Incarnation
	Database    string // path of the database; "" means that of Incarnation
	// Cleared, if not nil, is called as soon as nothing stands in the database
	// any more that a server would resume: its lock may be released then.
	Cleared func()
}

// Parked is what Park did.
type Parked struct {
	Claims    int     // claims moved out of the server's database
	Jobs      int     // background jobs moved out of it
	Suspended int     // suspensions made
	Settled   int     // claims and suspensions of the ended incarnation that had ended by themselves
	Warnings  []error // what did not work and is not needed for safety: descriptions, marks
}

// Suspension is a session that waits for consent, or whose consent is being carried out.
type Suspension struct {
	ID          string `json:"id"`
	SuspendedAt int64  `json:"suspendedAt"` // Unix ms
	Cause       Cause  `json:"cause"`
	State       State  `json:"state"`
	Reason      string `json:"reason"`
	Description        // Children are the sessions that wait under it
	Jobs        []Job  `json:"jobs"` // background jobs that were lost, its own and its children's
	Resumes     int    `json:"resumes"`
	ClaimedAt   int64  `json:"claimedAt,omitempty"` // parked claim: as the server wrote it (Unix ms)
	Attempts    int    `json:"attempts,omitempty"`  // parked claim: the server's own count
}

// JournalEntry is one line of the journal.
type JournalEntry struct {
	Time        int64 // Unix ms
	Session     string
	SuspendedAt int64 // the suspension it is about
	What        string
	Detail      string
}

// Counts is how many sessions are in which state.
type Counts struct {
	Claims  int // at work, as far as events told
	Pending int // heads that wait for consent, those of unknown outcome included
	Flying  int // queued or resuming
}

// Ticket is a consent that was counted: the right to deliver once.
type Ticket struct {
	Delivery
	Consent int64  // which consent of this session it is
	Mark    string // the session's mark when it was suspended
}

// Open opens the ledger at path, and makes it when there is none.
func Open(path string, now func() time.Time) (*Ledger, error) { return nil, errSoon }

// Close closes the ledger.
func (l *Ledger) Close() error { return errSoon }

// OnChange has f called after each committed change of what is shown. Set it before use.
func (l *Ledger) OnChange(f func()) {}

// BeginIncarnation records that inc runs, spawned or adopted. Beginning the same one again does nothing.
func (l *Ledger) BeginIncarnation(ctx context.Context, inc Incarnation) error { return errSoon }

// Apply records an event of the running incarnation.
func (l *Ledger) Apply(ctx context.Context, e Event) error { return errSoon }

// Resync corrects the claims after events may have been missed: active is what
// the server said it executes, asked at (Unix ms, taken before asking).
func (l *Ledger) Resync(ctx context.Context, active []string, at int64) error { return errSoon }

// Suspend writes, before a graceful stop, that the active sessions are suspended at (Unix ms).
func (l *Ledger) Suspend(ctx context.Context, active []string, at int64) error { return errSoon }

// Unsuspend takes Suspend back: the stop was abandoned and the server goes on.
func (l *Ledger) Unsuspend(ctx context.Context) error { return errSoon }

// SetWaiting records what sessions wait for ("permission", "question"), by session.
func (l *Ledger) SetWaiting(ctx context.Context, waiting map[string]string) error { return errSoon }

// Park moves what the server would resume by itself into the ledger. Only while no server runs.
// After an error no server may be started.
func (l *Ledger) Park(ctx context.Context, db Database, opts ParkOptions) (Parked, error) {
	return Parked{}, errSoon
}

// Describe fetches descriptions of suspensions that have none.
func (l *Ledger) Describe(ctx context.Context, db Database) error { return errSoon }

// Reconcile settles suspensions whose session went on, ended or vanished without us.
func (l *Ledger) Reconcile(ctx context.Context, db Database) error { return errSoon }

// Recover decides what an earlier supervisor left between consent and outcome. Once, when a server is ready.
func (l *Ledger) Recover(ctx context.Context, lookup func(context.Context, Delivery) (Arrival, error), db Database) error {
	return errSoon
}

// Pending lists suspensions, oldest first.
func (l *Ledger) Pending(ctx context.Context) ([]Suspension, error) { return nil, errSoon }

// Show tells all of a session; pending is false when nothing of it waits any more.
func (l *Ledger) Show(ctx context.Context, id string) (s Suspension, pending bool, journal []JournalEntry, err error) {
	return Suspension{}, false, nil, errSoon
}

// AmbiguousError says that a beginning fits several sessions.
type AmbiguousError struct {
	Prefix     string
	Candidates []string
}

func (e *AmbiguousError) Error() string { return e.Prefix }

// Resolve gives the session that prefix names: an id or an unambiguous beginning of one.
func (l *Ledger) Resolve(ctx context.Context, prefix string) (string, error) { return "", errSoon }

// Claims gives the sessions that are at work, as far as events told.
func (l *Ledger) Claims(ctx context.Context) ([]string, error) { return nil, errSoon }

// Counts counts.
func (l *Ledger) Counts(ctx context.Context) (Counts, error) { return Counts{}, errSoon }

// Shown journals, once a suspension, that a person was shown it.
func (l *Ledger) Shown(ctx context.Context, ids []string) error { return errSoon }

// Dismiss is the person's no; at 0 means the suspension that is pending now. It gives the number of sessions dismissed.
func (l *Ledger) Dismiss(ctx context.Context, id string, at int64) (int, error) { return 0, errSoon }
