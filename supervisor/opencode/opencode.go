// Package opencode knows what an OpenCode server looks like from outside: how it
// is found and started, its registration and lock, its HTTP API and event
// stream, and the part of its database that matters for restart.
//
// Three kinds are told apart by looking, never by configuration: v1 (1.18, no
// service mode), v2 early (session.time_suspended) and v2 claims
// (session_v2.time_suspended, background jobs). Install is the program as this
// user has it; Incarnation is one run of it; Client talks to that run; Database
// reads and parks its file. Client and Database fit package restart's
// interfaces. Facts about the server come from observation and are dated in the
// comments that use them.
//
// One run, in order: Locate; Install.Discover, which finds what is up to adopt,
// or Install.Spawn and Install.AwaitReady; Connect; Client.Events, held open
// until the incarnation ends; Client.Quiesce or Client.Stop.
package opencode

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"intermission/restart"
)

// Generation is a family of servers with one way of being supervised.
type Generation string

// The generations.
const (
	V1 Generation = "v1" // 1.x: opencode serve; resumes nothing by itself, suspends nothing
	V2 Generation = "v2" // 2.x and previews: opencode serve --service; resumes at boot
)

// Incarnation is one run of a server: what is needed to find and talk to it.
// It holds the password: never log or print it whole.
type Incarnation struct {
	ID         string     `json:"id"` // v2: the registration's id; v1: ours
	Generation Generation `json:"generation"`
	Version    string     `json:"version"`
	URL        string     `json:"url"`
	PID        int        `json:"pid"` // the server itself, not a shim that started it
	Password   string     `json:"password"`
}

// Username is the HTTP Basic user of every generation.
const Username = "opencode"

// String identifies the incarnation without its password.
func (i Incarnation) String() string {
	return fmt.Sprintf("opencode %s pid %d at %s", i.Version, i.PID, i.URL)
}

// secretLeast is the length in bytes from which on a password is no word that stands in a text by chance.
const secretLeast = 6

// withoutSecrets takes the password out of a text, as it is and as it was sent.
func (i Incarnation) withoutSecrets(text string) string {
	if len(i.Password) < secretLeast {
		return text
	}
	const gone = "(redacted)"
	sent := base64.StdEncoding.EncodeToString([]byte(Username + ":" + i.Password))
	return strings.NewReplacer(sent, gone, i.Password, gone, url.QueryEscape(i.Password), gone, url.PathEscape(i.Password), gone).Replace(text)
}

// readAnew is what a changed configuration takes: the supervisor reads it at its start only.
const readAnew = "run: intermission service restart"

// NotFoundError says that no opencode program could be found. Its text, as that of each
// error here, is what is wrong, then "; ", then the one act.
type NotFoundError struct {
	Command string
	Looked  []string // where we looked, in order
	Shell   error    // why the login shell's PATH isn't known; nil where it is
	Unfit   string   // why a configured path can't be run: "isn't there", "is a directory", "is not executable"; "" when it was searched for
}

func (e *NotFoundError) Error() string {
	if e.Unfit != "" {
		return fmt.Sprintf("%s %s; name a program as [server] command in config.toml, and %s", strings.Join(e.Looked, ", "), e.Unfit, readAnew)
	}
	// Where it looked is a long list, which doctor shows.
	shell := ""
	if e.Shell != nil {
		shell = fmt.Sprintf(" (which can't be had: %v)", e.Shell)
	}
	return fmt.Sprintf("cannot find the program %q on PATH, on the login shell's PATH%s or in the usual places (intermission doctor lists them);"+
		" install it and run: intermission start, or name it as [server] command in config.toml and %s", e.Command, shell, readAnew)
}

// UnsupportedVersionError says that the program is of a version that we don't know how to supervise.
// Version is all that it printed where no version is in it.
type UnsupportedVersionError struct{ Program, Version string }

// maxShown is how many characters of a version that isn't known are shown: a program that is no server prints a page.
const maxShown = 60

func (e *UnsupportedVersionError) Error() string {
	version, _, _ := strings.Cut(strings.TrimSpace(e.Version), "\n")
	if shown := []rune(version); len(shown) > maxShown {
		version = string(shown[:maxShown]) + "…"
	}
	return fmt.Sprintf("%s reports version %q, which is not known to intermission (known: 1.x and 2.x); name another program as [server] command in config.toml, and %s", e.Program, version, readAnew)
}

// UnknownShapeError says that the database has a shape that we don't know, so that nothing may be started on it.
type UnknownShapeError struct{ Path, Reason string }

func (e *UnknownShapeError) Error() string {
	return fmt.Sprintf("the database %s has a shape that intermission doesn't know: %s; update intermission, or set OPENCODE_DB to another file", e.Path, restart.PlainText(e.Reason, maxSaid))
}

// IncumbentError says that a server is alive that can't be adopted.
type IncumbentError struct {
	PID    int
	Kind   HealthKind
	Reason string
}

func (e *IncumbentError) Error() string {
	return fmt.Sprintf("another OpenCode server (pid %d) is up, but %s; stop that one, and ours starts by itself", e.PID, e.Reason)
}

// ErrNone says that no server is registered and alive.
var ErrNone = errors.New("no server is registered and alive")

// HealthKind tells the ways of not being healthy apart.
type HealthKind string

// The ways a health check can end.
const (
	Healthy      HealthKind = "healthy"
	NotListening HealthKind = "not listening" // connection refused
	Silent       HealthKind = "silent"        // accepted, never answered
	BootFailed   HealthKind = "boot failed"   // v2: 500; the process stays and keeps its lock
	Transition   HealthKind = "transition"    // 503: starting or stopping
	Unauthorized HealthKind = "unauthorized"  // 401: it isn't the server we know the password of
	Stranger     HealthKind = "stranger"      // another pid, or not an OpenCode server at all
)

// HealthError is a failed health check.
type HealthError struct {
	Kind   HealthKind
	Detail string
}

// Error says the kind as the second half of "the server is up, but …".
func (e *HealthError) Error() string {
	said := healthSentences[e.Kind]
	if e.Detail != "" {
		said += " (" + e.Detail + ")"
	}
	return said
}

// healthTimeout bounds one health request: a request accepted between bind and readiness is never answered (v1 and v2).
const healthTimeout = 2 * time.Second
