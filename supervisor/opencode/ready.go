package opencode

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ErrExited says that the spawned process ended before it was ready.
var ErrExited = errors.New("the server exited before it was ready")

const (
	// firstPoll and lastPoll bound the pause between two looks at a server that is not ready yet.
	firstPoll = 20 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
	// fileSlack is how much older than the spawn a changed file may look: the coarsest clock of a file system (FAT).
	fileSlack = 2 * time.Second
)

// ReadySource is the process that was spawned, as AwaitReady needs to know it.
type ReadySource struct {
	ID       string    // our id of the incarnation (v1)
	PID      int       // of the spawned process (v1)
	Password string    // that it was given (v1)
	Since    time.Time // just before the spawn

	// Owns tells whether pid is the spawned process or one of its process tree:
	// on the PATH there may be a script that starts the real server.
	Owns func(pid int) bool
	// Registered, where set, is called once when the spawned tree has registered
	// (v2): it holds the lock from then on, and may sweep before it is healthy.
	Registered func()
	// Lines are the lines of its output (v1). It must be read by AwaitReady only
	// until it returns; whoever sends must not block on it for good.
	Lines <-chan string
	// Exited is closed when the spawned process has ended; then ExitCode is its
	// status, -1 when it was ended by a signal.
	Exited   <-chan struct{}
	ExitCode func() int
}

// AwaitReady waits until the spawned server answers as healthy, or ctx ends: then
// the error says, in one sentence, how far it came, and is a *HealthError where
// the server was there but unwell. ErrExited when the process ended before.
//
// v2 is told by its registration: one that was written after the spawn by a
// process of the spawned tree. When the spawned process exits with 0, another
// server held the lock or the program was a shim: then any registered healthy server on
// the same database is returned, and it is for the caller to see whether it is
// another's that is to be adopted (Owns, or the marker in its environment).
//
// v1 is told by the line that it prints; PID is then the spawned process.
func (i *Install) AwaitReady(ctx context.Context, spawned ReadySource) (Incarnation, error) {
	if i.Generation == V1 {
		return i.awaitLine(ctx, spawned)
	}
	return i.awaitRegistration(ctx, spawned)
}

func (i *Install) awaitRegistration(ctx context.Context, spawned ReadySource) (Incarnation, error) {
	dir := i.RegistrationDir()
	if err := os.MkdirAll(dir, 0o700); err != nil { // to be watched, it must be there
		return Incarnation{}, fmt.Errorf("cannot make the registration directory: %w", err)
	}
	changes, stop := watch(dir)
	defer stop()
	exited, anyone := spawned.Exited, false
	last := errors.New("the server has not registered")
	for pause := firstPoll; ; pause = min(pause*2, lastPoll) {
		for _, r := range registrations(dir) {
			ours := alive(r.PID) && spawned.registered(r)
			if ours && spawned.Registered != nil {
				spawned.Registered()
				spawned.Registered = nil
			}
			if !ours && !(anyone && i.shares(r) && alive(r.PID)) {
				continue
			}
			err := Health(ctx, r.Incarnation)
			if err == nil {
				return r.Incarnation, nil
			}
			if ctx.Err() == nil {
				last = err
			}
		}
		select {
		case <-ctx.Done():
			return Incarnation{}, notReady(ctx, last)
		case <-exited:
			if code := spawned.ExitCode(); code != 0 {
				return Incarnation{}, ErrExited
			}
			exited, anyone, pause = nil, true, firstPoll
		case <-changes:
			pause = firstPoll
		case <-time.After(pause):
		}
	}
}

// registered tells whether the spawned process, or one of its tree, wrote r.
func (s ReadySource) registered(r registration) bool {
	return !r.Changed.Before(s.Since.Add(-fileSlack)) && s.Owns(r.PID)
}

// watch tells of changes in dir. Where the system gives no watch (its number is
// limited), nothing is told, and the polling has to do.
func watch(dir string) (changes <-chan fsnotify.Event, stop func()) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}
	}
	if err := watcher.Add(dir); err != nil {
		_ = watcher.Close()
		return nil, func() {}
	}
	return watcher.Events, func() { _ = watcher.Close() }
}

// listening is the line by which v1 tells its address (1.18, 2026). A request
// that is accepted before it is printed is never answered.
var listening = regexp.MustCompile(`opencode server listening on (http://\S+)`)

func (i *Install) awaitLine(ctx context.Context, spawned ReadySource) (Incarnation, error) {
	inc := Incarnation{ID: spawned.ID, Generation: V1, Version: i.Version, PID: spawned.PID, Password: spawned.Password}
	lines := spawned.Lines
	for inc.URL == "" {
		select {
		case <-ctx.Done():
			return Incarnation{}, notReady(ctx, errors.New("the server has not said where it listens"))
		case <-spawned.Exited:
			return Incarnation{}, ErrExited
		case line, ok := <-lines:
			if !ok {
				lines = nil // closed with the output; the end of the process follows
			}
			if m := listening.FindStringSubmatch(line); m != nil {
				if _, err := url.Parse(m[1]); err == nil {
					inc.URL = m[1]
				}
			}
		}
	}
	return inc, awaitHealth(ctx, inc, spawned.Exited)
}

func awaitHealth(ctx context.Context, inc Incarnation, exited <-chan struct{}) error {
	var last error
	for pause := firstPoll; ; pause = min(pause*2, lastPoll) {
		err := Health(ctx, inc)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // else it is the end of our time that the last look met
			last = err
		}
		select {
		case <-ctx.Done():
			return notReady(ctx, last)
		case <-exited:
			return ErrExited
		case <-time.After(pause):
		}
	}
}

// notReady says how far the server came when the time was over.
func notReady(ctx context.Context, last error) error {
	var unwell *HealthError
	if errors.As(last, &unwell) {
		return fmt.Errorf("the server did not become ready: %w", unwell)
	}
	return fmt.Errorf("%w: %w", last, context.Cause(ctx))
}
