// Package control is the supervisor's local API: HTTP and JSON on a Unix socket
// (Windows: a named pipe) that only the user can reach, with one event stream.
// The command line and the tray know the supervisor only through it.
//
// Server serves a Backend; Client calls it. Every answer's shape is a type of
// this file, and so is every error (code, message).
package control

import (
	"context"
	"fmt"
	"io"
	"time"

	"intermission/restart"
)

// Status is the answer of GET /v1/status and of `status --json`.
type Status struct {
	Supervisor SupervisorStatus `json:"supervisor"`
	Server     ServerStatus     `json:"server"`
	Sessions   SessionStatus    `json:"sessions"`
}

// SupervisorStatus is the supervisor itself.
type SupervisorStatus struct {
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Available is the version of the intermission that has replaced this one's program;
	// "" when none has. It is used from the next start of the supervisor.
	Available string `json:"available,omitempty"`
	// Waits is why the available one doesn't take over by itself, with an act; "" when
	// nothing keeps it. Once that is mended, it does.
	Waits string `json:"waits,omitempty"`
	// Fault is what keeps its configuration from being read; "" when nothing does. It adopts and
	// parks all the same, and starts no server.
	Fault string `json:"fault,omitempty"`
}

// ServerStatus is the managed server.
type ServerStatus struct {
	State       string     `json:"state"`   // stopped, starting, running, stopping, backoff, failed, blocked
	Desired     string     `json:"desired"` // running, stopped
	Generation  string     `json:"generation"`
	Version     string     `json:"version"`
	PID         int        `json:"pid"`
	URL         string     `json:"url"`
	Incarnation string     `json:"incarnation"`
	Adopted     bool       `json:"adopted"`
	Restarts    int        `json:"restarts"`
	Reason      string     `json:"reason"` // why it is not running, with one act
	LastExit    *Exit      `json:"lastExit,omitempty"`
	NextAttempt *time.Time `json:"nextAttempt,omitempty"`
	RSSBytes    int64      `json:"rssBytes"`
	// Available is the version of the program in place when the server runs another,
	// older or newer; else "". It is used from the next start of the server, which is as
	// soon as nothing is active in it.
	Available string `json:"available,omitempty"`
}

// Exit is how an incarnation ended.
type Exit struct {
	Code   int       `json:"code"`
	Signal string    `json:"signal"`
	At     time.Time `json:"at"`
	Output []string  `json:"output"` // its last lines
}

// SessionStatus counts sessions.
type SessionStatus struct {
	Active  []string  `json:"active"`
	Working []Working `json:"working"`           // the active ones, with what a menu shows; earliest start first
	Pending int       `json:"pending"`           // wait for consent
	Unknown bool      `json:"unknown,omitempty"` // the ledger can't be read: Pending says nothing
}

// Working is a session that executes now.
type Working struct {
	ID        string `json:"id"`
	Title     string `json:"title"`     // "" while it isn't known
	Directory string `json:"directory"` // "" while it isn't known
	StartedAt int64  `json:"startedAt"` // Unix milliseconds: when its execution was first seen; names the execution
	// ProgressAt is when it last did something (text, tool, step), Unix milliseconds.
	// A snapshot tells it when a session falls silent for QuietAfter, and when it
	// does something again; in between it may be that much behind, so that the age of
	// it is not the length of a silence. Quiet says that it is.
	ProgressAt int64  `json:"progressAt"`
	Quiet      bool   `json:"quiet"`      // it has done nothing for QuietAfter
	WaitingFor string `json:"waitingFor"` // permission, question or "": then it is its user who is silent
}

// QuietAfter is how long a session does nothing before watchers are told.
const QuietAfter = time.Minute

// Suspension is one entry of `pending --json`.
type Suspension struct {
	ID          string          `json:"id"`
	Title       string          `json:"title"`
	Directory   string          `json:"directory"`
	SuspendedAt int64           `json:"suspendedAt"` // Unix milliseconds
	Cause       restart.Cause   `json:"cause"`
	State       restart.State   `json:"state"`
	Reason      string          `json:"reason"`
	LastPrompt  *restart.Prompt `json:"lastPrompt,omitempty"`
	LastTool    *restart.Tool   `json:"lastTool,omitempty"`
	WaitingFor  string          `json:"waitingFor"`
	Children    []string        `json:"children"`
	Jobs        []Job           `json:"jobs"`
	Resumes     int             `json:"resumes"`
	ClaimedAt   int64           `json:"claimedAt,omitempty"` // parked claim: the server's own time, Unix milliseconds
	Attempts    int             `json:"attempts,omitempty"`  // parked claim: the server's own count
}

// Job is a background job of a suspended session.
type Job struct {
	Kind   string `json:"kind"`
	Text   string `json:"text"`
	Status string `json:"status"`
}

// Pending is the answer of GET /v1/pending, oldest suspension first.
type Pending struct {
	Pending []Suspension `json:"pending"`
}

// Detail is the answer of GET /v1/sessions/{id}: one suspension and its journal.
type Detail struct {
	Suspension
	Pending bool    `json:"pending"` // false: it was resumed, dismissed or settled; the journal says which
	Journal []Entry `json:"journal"`
}

// Entry is one line of the journal.
type Entry struct {
	Time        time.Time `json:"time"`
	SuspendedAt int64     `json:"suspendedAt,omitempty"`
	What        string    `json:"what"` // suspended, parked, shown, consented, delivered, refused, unknown, dismissed, settled
	Detail      string    `json:"detail,omitempty"`
}

// Result is the answer of a resume.
type Result struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"` // resumed, queued, already, refused, unknown
	Reason  string `json:"reason"`
}

// Dismissed is the answer of a dismiss.
type Dismissed struct {
	ID        string `json:"id"`
	Dismissed int    `json:"dismissed"` // the session and its subagents
}

// Ending is the answer of a handover and of a leave: the supervisor is about to end.
type Ending struct {
	PID  int    `json:"pid"`  // of the supervisor
	Lock string `json:"lock"` // the file that it holds locked until all of it is over
}

// Interrupted is the answer of an interrupt.
type Interrupted struct {
	ID string `json:"id"`
}

// Attachment is how OpenCode's own interface is opened on one session: run Argv in
// Dir, with Env added to the environment. Env may hold a password: never log or
// print it.
type Attachment struct {
	Argv []string          `json:"argv"` // the first is absolute
	Dir  string            `json:"dir"`
	Env  map[string]string `json:"env"`
}

// String is the attachment without its secrets.
func (a Attachment) String() string { return fmt.Sprintf("%q in %q", a.Argv, a.Dir) }

// The codes of an Error, each with the exit status of the command that meets it.
const (
	CodeFailed       = "failed"        // 1
	CodeUsage        = "usage"         // 2
	CodeNoSupervisor = "no_supervisor" // 3
	CodeNotPending   = "not_pending"   // 4
	CodeAmbiguous    = "ambiguous"     // 2
	CodeRefused      = "refused"       // 5
	CodeUnknown      = "unknown"       // 6
)

// Error is every failure of the API. Its message names the thing and one act to take.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Snapshot is one event of GET /v1/events: all that a menu shows. The first comes
// at once, a further one only when something differs.
type Snapshot struct {
	Status   Status       `json:"status"`
	Pending  []Suspension `json:"pending"`
	Outcomes []Outcome    `json:"outcomes"` // the latest, oldest first; at most MaxOutcomes
}

// MaxOutcomes bounds Snapshot.Outcomes.
const MaxOutcomes = 16

// Outcome is what came of an execution that a person should hear of: it was not
// just resumed, or just done.
type Outcome struct {
	Seq         int64     `json:"seq"` // counts from 1 in one supervisor
	At          time.Time `json:"at"`
	ID          string    `json:"id"`
	Title       string    `json:"title"`
	SuspendedAt int64     `json:"suspendedAt,omitempty"` // of the suspension that was consented to; 0 when it was none of ours
	What        string    `json:"what"`                  // ended_at_once, refused, unknown, failed
	Reason      string    `json:"reason"`
}

// Backend is what the supervisor offers. Errors that are *Error are sent as they
// are, others as CodeFailed.
type Backend interface {
	Status(ctx context.Context) (Status, error)
	Pending(ctx context.Context) (Pending, error)
	// Show takes a session id or an unambiguous beginning of one.
	Show(ctx context.Context, id string) (Detail, error)
	// Resume consents to one suspension; at names it (Unix ms), 0 means the one that is pending now.
	Resume(ctx context.Context, id string, at int64) (Result, error)
	Dismiss(ctx context.Context, id string, at int64) (Dismissed, error)
	// Interrupt stops a session at work as its user, so that nothing is suspended; at
	// is the execution's StartedAt, 0 means the one that runs now. CodeNotPending when
	// it is not that one which runs, CodeUnknown when another had begun by the time the
	// server was asked. It returns when the server has accepted it.
	Interrupt(ctx context.Context, id string, at int64) (Interrupted, error)
	// Attach takes the id of any session that the running server has, or an unambiguous
	// beginning of one that is pending or at work. CodeRefused when no server runs.
	Attach(ctx context.Context, id string) (Attachment, error)
	// StartServer, StopServer and RestartServer record the durable wish and return
	// when it is fulfilled or can't be.
	StartServer(ctx context.Context) (Status, error)
	StopServer(ctx context.Context) (Status, error)
	RestartServer(ctx context.Context) (Status, error)
	// HandOver ends the supervisor and leaves its server, with all that works in it, to
	// the next one. It waits, until ctx ends, for a start or stop that is under way, and
	// some seconds for consents that are being delivered; those that are queued go back
	// to pending. A Client returns when the supervisor has let go of its locks, so that
	// the next one can be started.
	HandOver(ctx context.Context) (Ending, error)
	// Leave ends the supervisor as its service manager would: the server is stopped in
	// order before. A Client returns when all of it is over.
	Leave(ctx context.Context) (Ending, error)
	// MayLeave says why the supervisor should not be ended now: what is unfinished could
	// not be parked, and whoever starts a server afterwards would have it resumed. CodeRefused.
	MayLeave(ctx context.Context) error
	// Logs writes the last n lines of the server's output (all for n < 0), and with follow what comes, until ctx ends.
	Logs(ctx context.Context, w io.Writer, n int, follow bool) error
	// Watch sends a Snapshot now and at each change, until ctx ends.
	Watch(ctx context.Context, send func(Snapshot) error) error
}
