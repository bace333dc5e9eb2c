package supervisor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// maxLinks bounds the symbolic links on the way to a file.
const maxLinks = 40

// leading gives, by directory, the names in it that lead to the file and may come to
// lead elsewhere: its own, those of symbolic links on the way, and the one where the way
// ends because it is missing. Other directories on the way are not among them: they hold
// much that changes, and the directories in which a name counts tell their own end.
func leading(file string) map[string][]string {
	names := map[string][]string{}
	root := filepath.VolumeName(file) + string(filepath.Separator)
	at, rest := root, parts(file)
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		info, err := os.Lstat(next)
		link := err == nil && info.Mode()&os.ModeSymlink != 0
		counts := err != nil || link || len(rest) == 0
		if counts && at != root && !slices.Contains(names[at], name) { // what leads there from the root isn't replaced
			names[at] = append(names[at], name)
		}
		if err != nil {
			break
		}
		if !link {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err != nil || links > maxLinks {
			break
		}
		if filepath.IsAbs(target) {
			at = root
		}
		rest = append(parts(target), rest...)
	}
	return names
}

func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(filepath.VolumeName(path))), "/"),
		func(s string) bool { return s == "" || s == "." })
}

// replacement watches what leads to some files.
type replacement struct {
	files  func() []string      // absolute
	again  <-chan struct{}      // other files are to be watched
	settle time.Duration        // no change for so long ends a burst of them
	look   func() time.Duration // finds out what has changed; it is called again after that, unless it is 0
}

// watch calls look at the beginning, and after each burst of changes, until ctx ends.
// What leads to a file may lead elsewhere after a change, so that all is watched anew.
func (r replacement) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("cannot watch files: %w", err)
		}
		names := r.leading()
		for range maxAttempts {
			for dir := range names {
				_ = w.Add(dir) // a directory that can't be read is one that its user doesn't change
			}
			before := names
			if names = r.leading(); maps.EqualFunc(names, before, slices.Equal) {
				break // else what leads there was changed before it was watched
			}
		}
		r.await(ctx, w, names, r.look()) // looked at when it is watched already: nothing is missed
		w.Close()
	}
	return nil
}

// maxAttempts bounds how often is looked anew at what changes while it begins to be watched.
const maxAttempts = 10

// leading gives what leads to all of the files.
func (r replacement) leading() map[string][]string {
	names := map[string][]string{}
	for _, f := range r.files() {
		for dir, lead := range leading(f) {
			names[dir] = append(names[dir], lead...)
		}
	}
	return names
}

// await waits for a burst of changes and its end, or until another look is due after pause.
func (r replacement) await(ctx context.Context, w *fsnotify.Watcher, names map[string][]string, pause time.Duration) {
	due := time.NewTimer(pause)
	defer due.Stop()
	if pause == 0 {
		due.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.again:
			return
		case <-due.C:
			return
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			_, isDir := names[e.Name]
			if isDir || slices.Contains(names[filepath.Dir(e.Name)], filepath.Base(e.Name)) {
				due.Reset(r.settle)
			}
		case <-w.Errors: // an overflow: as after any change
			due.Reset(r.settle)
		}
	}
}

// retries are the pauses before looks at a file that isn't usable yet: it may still
// be written, and its last change comes before the moment when it can be executed.
var retries = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}

// retry gives the pause before the look that follows the n-th fruitless one; 0 for none.
func retry(n int) time.Duration {
	if n < len(retries) {
		return retries[n]
	}
	return 0
}
