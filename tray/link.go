package tray

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"intermission/platform"
	"intermission/supervisor/control"
)

// link hears what the supervisor says, whichever runs, until ctx ends. While none
// does, it waits for the note of its socket that each writes when it is up.
type link struct {
	paths platform.Paths
	log   *slog.Logger
	tell  func(Input)
}

const (
	firstRetry = time.Second // after a fault; doubled at each further one
	lastRetry  = time.Minute
)

func (l *link) run(ctx context.Context) error {
	notes, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("cannot watch for a supervisor: %w", err)
	}
	defer notes.Close()
	for _, dir := range l.directories() {
		if err := notes.Add(dir); err != nil {
			return fmt.Errorf("cannot watch %s for a supervisor: %w", dir, err)
		}
	}
	retry, said := firstRetry, ""
	for {
		began := time.Now()
		heard, err := l.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if heard && time.Since(began) > firstRetry {
			continue // it has ended, or only its stream: the next try tells
		}
		loss := lossOf(err)
		l.tell(Input{Lost: &loss})
		if heard {
			retry = firstRetry
		}
		var again <-chan time.Time
		if !loss.Absent { // it is there: nothing would tell us when it has come to its senses
			if loss.Reason != said {
				said = loss.Reason
				l.log.Warn("the supervisor can't be understood", "reason", loss.Reason)
			}
			again = time.After(retry)
			retry = min(2*retry, lastRetry)
		}
		if !l.await(ctx, notes, again) {
			return nil
		}
	}
}

// directories hold what a supervisor writes when it comes up: the note of its
// socket, and the socket itself where that is a file.
func (l *link) directories() []string {
	return slices.Compact([]string{l.paths.State, l.paths.Runtime})
}

// listen passes on what one supervisor says, until it is lost; nil says that it has ended.
func (l *link) listen(ctx context.Context) (heard bool, err error) {
	client := control.Dial(l.paths.LiveSocket())
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	mute := time.AfterFunc(firstWordBy, func() { cancel(errMute) })
	defer mute.Stop()
	err = client.Watch(ctx, func(snap control.Snapshot) error {
		mute.Stop()
		heard = true
		l.tell(Input{Snapshot: &snap})
		return ctx.Err()
	})
	if errors.Is(context.Cause(ctx), errMute) {
		err = errMute
	}
	return heard, err
}

// firstWordBy is how long a supervisor may take to say anything at all.
const firstWordBy = 10 * time.Second

var errMute = errors.New("the supervisor doesn't answer; if that lasts, end it and start it again")

func lossOf(err error) Loss {
	var e *control.Error
	if err == nil || errors.As(err, &e) && e.Code == control.CodeNoSupervisor {
		return Loss{Absent: true}
	}
	return Loss{Reason: err.Error()}
}

// await waits until a supervisor has come, or it is time to look again; false when ctx ended.
func (l *link) await(ctx context.Context, notes *fsnotify.Watcher, again <-chan time.Time) bool {
	signs := []string{l.paths.SocketRecord(), l.paths.Socket}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case e := <-notes.Events:
			switch {
			case slices.Contains(signs, e.Name) && !e.Has(fsnotify.Remove):
				return true
			case slices.Contains(l.directories(), e.Name) && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
				// The watch went with it. What is written into its place before we watch
				// that is found by looking.
				_ = notes.Remove(e.Name)
				if platform.EnsurePrivateDir(e.Name) == nil && notes.Add(e.Name) == nil {
					return true
				}
			}
		case <-notes.Errors: // an overflow: it may have been among what was lost
			return true
		}
	}
}
