// Package restart holds the ledger and its rules: which sessions were at work
// when their server ended, and what a person has decided about each.
//
// A session's turn in flight is a claim. When the incarnation that ran it ends,
// the claim becomes a suspension, identified by (session, time_suspended). A
// suspension stays until exactly one of these happens to it:
//
//	            ┌────────────── refused, or surely not delivered: put back ─────────────┐
//	            ▼                                                                       │
//	claim ─▶ pending ── consent ─▶ queued ─▶ resuming ── delivered ─▶ resumed           │
//	            │ ▲                              ├──────────────────────────────────────┘
//	            │ └──── new consent needed ── unknown ◀── outcome can't be known
//	            ├── the person says no ─▶ dismissed
//	            └── went on, ended or vanished without us ─▶ settled
//
// Consent consumes the suspension by one conditional UPDATE … RETURNING, so that
// of any number of callers one gets it. The intent is committed before each side
// effect, so that a crash at any point leaves a state that tells what may have
// happened. Rows of the journal are only ever added.
//
// A supervisor uses it so: Open the Ledger. Before each start of a server Park,
// after it BeginIncarnation, Recover, Reconcile, and Resumer.SetServer. While it
// runs, Apply and then Observe each event, and Resync when some were missed.
// Before a stop Suspend; whenever it has ended, for whatever reason, Park. A
// person's consent is Resumer.Resume, the no is Ledger.Dismiss.
//
// This package knows no HTTP, no process and no OpenCode. It declares what it
// needs of them: Database (the server's database while no server runs, and
// read-only otherwise) and Server (the live server).
package restart

import (
	"context"
	"encoding/json"
	"errors"
)

// Cause says why a session is suspended.
type Cause string

// The causes of a suspension.
const (
	CauseShutdown Cause = "shutdown" // a graceful stop
	CauseCrash    Cause = "crash"    // the incarnation died
	CauseParked   Cause = "parked"   // found in the server's database, written by an incarnation we did not watch
)

// State is what can be done about a suspension now.
type State string

// The states of a suspension that is shown.
const (
	StatePending   State = "pending"   // waits for consent
	StateQueued    State = "queued"    // consented to, waits for one of the places
	StateResuming  State = "resuming"  // being delivered
	StateElsewhere State = "elsewhere" // runs in another server
	StateBlocked   State = "blocked"   // can't be resumed now; Reason says why
	StateUnknown   State = "unknown"   // delivered or not: can't be known; needs a new consent
)

// Claim is the record, in the server's database, that a session's turn is in
// flight or was suspended by the server itself.
type Claim struct {
	Session   string
	ClaimedAt int64           // Unix milliseconds, as the server wrote it
	Attempts  int             // the server's own count of resumes; 0 where it keeps none
	Parent    string          // the session that it works for; "" when it is nobody's subagent
	Raw       json.RawMessage // the claim's columns as they stood
	// Elsewhere says that another process has had the database open since before the
	// claim was written, and may be who wrote it. None of ours runs then.
	Elsewhere bool
}

// Job is a background job in the server's database that would act at its next start.
type Job struct {
	Key     string          // its key in the server's database
	Kind    string          // "shell", "subagent", or the server's own word when unknown
	Session string          // the session that it would wake; "" when it can't be told
	Child   string          // the session that a subagent job runs
	Text    string          // command or description
	Status  string          // running, completed, error, cancelled
	Raw     json.RawMessage // the row as it stood
}

// Sweep is what a server would resume by itself at its next start.
type Sweep struct {
	Claims []Claim
	Jobs   []Job
}

// Outcome is how the newest execution of a session ended, by the server's database.
type Outcome int

// The outcomes of an execution.
const (
	OutcomeUnknown   Outcome = iota // the database doesn't tell
	OutcomeInFlight                 // started, no end recorded
	OutcomeSuspended                // interrupted by a shutdown
	OutcomeEnded                    // succeeded, failed or interrupted by its user
	OutcomeArchived                 // the session is archived
	OutcomeGone                     // the session is not in the database
)

// Fate is what the server's database says of one session.
type Fate struct {
	Outcome Outcome
	// Mark changes whenever the session executes or is written to by its user,
	// and only then. Opaque; compared for equality. It never depends on a clock.
	Mark string
}

// Prompt is what the person last wrote to a session.
type Prompt struct {
	Text string `json:"text"` // first line
	At   int64  `json:"at"`   // Unix milliseconds
}

// Tool is the last tool that a session called.
type Tool struct {
	Name   string `json:"name"`
	Input  string `json:"input"`
	Status string `json:"status"` // running, error, completed
}

// Description is what a person sees of a session before consenting.
type Description struct {
	Title      string   `json:"title"`
	Directory  string   `json:"directory"`
	Parent     string   `json:"parent,omitempty"`
	Children   []string `json:"children,omitempty"` // sessions whose parent it is and that were at work
	LastPrompt *Prompt  `json:"lastPrompt,omitempty"`
	LastTool   *Tool    `json:"lastTool,omitempty"`
	WaitingFor string   `json:"waitingFor,omitempty"` // permission, question or ""
	Agent      string   `json:"agent,omitempty"`      // v1: what a continuation must name
	Model      string   `json:"model,omitempty"`      // v1: JSON {"providerID","modelID"}
}

// Database is the server's own database. All methods but Clear only read, in
// short read transactions, and are safe beside a running server.
type Database interface {
	// Sweep reads the claims and background jobs that the server would act on at
	// its next start. Empty for a generation that resumes nothing by itself.
	Sweep(ctx context.Context) (Sweep, error)
	// Clear takes exactly these claims and jobs out of the database, holding the
	// write lock for at most 250 ms at a time. It fails with ErrChanged when a row is
	// not as it was read, or there are others. After an error a part of a large set may
	// be cleared. Only while no server runs, and with all of it in the ledger.
	Clear(ctx context.Context, s Sweep) error
	// InFlight gives sessions whose execution was started at or after since (Unix
	// ms) and has no end recorded: what a killed incarnation was doing. Empty for
	// a generation whose database does not tell reliably (v1).
	InFlight(ctx context.Context, since int64) ([]string, error)
	// Fates tells of each session how it ended. Every session asked for is in the answer.
	Fates(ctx context.Context, sessions []string) (map[string]Fate, error)
	// Describe tells what a person sees of each session. Sessions that are gone are absent.
	Describe(ctx context.Context, sessions []string) (map[string]Description, error)
}

// Delivery is one attempt to continue one session.
type Delivery struct {
	Session   string
	Directory string
	Suspended int64  // the suspension that was consumed; source of the idempotency key
	Text      string // what the session must be told (background jobs that were lost); "" for a plain continuation
	Agent     string // v1
	Model     string // v1
}

// Arrival tells whether a delivery reached the server.
type Arrival int

// What can be known of a delivery.
const (
	ArrivalUnknown Arrival = iota // can't be known
	Arrived                       // it did: it executed, executes or will
	NotArrived                    // surely not, and it won't any more
)

// Server is the live managed server.
type Server interface {
	// Active gives the sessions that execute in this server now.
	Active(ctx context.Context) ([]string, error)
	// Deliver makes the session continue. It returns nil when the server has
	// accepted it, at once or only when the execution has settled. A *RefusedError
	// is sure: nothing was or will be executed. Any other error is not: ask Lookup.
	Deliver(ctx context.Context, d Delivery) error
	// Lookup tells whether d reached the server, by its idempotency key.
	Lookup(ctx context.Context, d Delivery) (Arrival, error)
	// Waiting gives what the session waits for: "permission", "question" or "".
	Waiting(ctx context.Context, session, directory string) (string, error)
}

// RefusedError says that the server surely did not and will not execute.
type RefusedError struct {
	Gone   bool // the session does not exist (any more)
	Reason string
}

func (e *RefusedError) Error() string { return e.Reason }

// AnsweredError says that the server answered with a failure of its own, so that it
// is done with the request: what it has executed by then, its database shows.
type AnsweredError struct{ Reason string }

func (e *AnsweredError) Error() string { return e.Reason }

var (
	// ErrChanged says that the database changed between Sweep and Clear.
	ErrChanged = errors.New("the server's database changed while it was parked")
	// ErrNotPending says that no such suspension is pending: it was resumed, dismissed, settled or replaced.
	ErrNotPending = errors.New("not pending")
	// ErrNewer says that the ledger was written by a newer intermission.
	ErrNewer = errors.New("the ledger was written by a newer intermission")
)

// EventKind is a kind of lifecycle event.
type EventKind string

// The lifecycle events of a session.
const (
	EventStarted     EventKind = "started"
	EventSucceeded   EventKind = "succeeded"
	EventFailed      EventKind = "failed"
	EventInterrupted EventKind = "interrupted" // by its user, or superseded
	EventShutdown    EventKind = "shutdown"    // interrupted by the server's shutdown
	EventProgress    EventKind = "progress"    // it did something: text, tool, step
	EventAsked       EventKind = "asked"       // a permission or question was opened, answered or withdrawn
	EventDeleted     EventKind = "deleted"
	EventArchived    EventKind = "archived"
)

// Event is something that happened to a session, as its server tells.
type Event struct {
	Kind      EventKind
	Session   string
	Directory string // "" when the event doesn't say
	At        int64  // Unix milliseconds by the server's clock; 0 when it doesn't say
	Err       string // EventFailed: why
}
