package restart

import (
	"context"
	"errors"
	"time"
)

var errSoon = errors.New("not built yet")

// Verdict is what came of a consent.
type Verdict string

// The verdicts.
const (
	VerdictResumed Verdict = "resumed" // it executes, or did; Reason says so when it ended at once
	VerdictQueued  Verdict = "queued"  // consented, waits for one of the places
	VerdictAlready Verdict = "already" // resumed, dismissed or settled before, or being resumed
	VerdictRefused Verdict = "refused" // not resumed; Reason says why
	VerdictUnknown Verdict = "unknown" // can't be known; needs a new consent
)

// Result is the answer to a consent.
type Result struct {
	ID      string
	Verdict Verdict
	Reason  string
}

// ResumerConfig configures a Resumer. Zero values take the defaults.
type ResumerConfig struct {
	Concurrency int                  // resumed sessions that execute at once; default 4
	Text        string               // told to a session that lost background jobs, before they are listed
	Now         func() time.Time     // default time.Now
	Settle      time.Duration        // accepted and nothing started for so long: ended at once; default 5 s
	Exists      func(dir string) bool // whether a directory is there; default os.Stat
}

// Resumer carries out consents, each at most once.
type Resumer struct{}

// NewResumer makes a Resumer. No server is up until SetServer.
func NewResumer(l *Ledger, c ResumerConfig) *Resumer { return &Resumer{} }

// SetServer says which server is up; nil, nil when none is.
func (r *Resumer) SetServer(s Server, db Database) {}

// Resume consents to one suspension; at names it (Unix ms), 0 means the one that
// is pending now. It returns when the outcome is known, or when it waits for a
// place. ErrNotPending: nothing of that session was ever suspended.
func (r *Resumer) Resume(ctx context.Context, id string, at int64) (Result, error) {
	return Result{}, errSoon
}

// Pending is Ledger.Pending with what can't be resumed now shown as blocked: server down, directory gone.
func (r *Resumer) Pending(ctx context.Context) ([]Suspension, error) { return nil, errSoon }

// Observe tells of an event, after Ledger.Apply.
func (r *Resumer) Observe(e Event) {}

// Close ends all goroutines and waits for them.
func (r *Resumer) Close() {}
