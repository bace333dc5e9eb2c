//go:build unix

package platform

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// entryWatch watches a file by its name in several directories. The first is the
// user's; the kernel watches directories and not names, so it is looked for again
// whenever it or one above it is replaced.
type entryWatch struct {
	*fsnotify.Watcher
	dirs  []string
	above []string // the user's directory, and those above it, up to the root
	file  string
}

// watchEntry makes the user's directory when it isn't there at first; later it
// waits for it. The others are watched if they are there now.
func watchEntry(ctx context.Context, dirs []string, file string, changed func()) error {
	if err := os.MkdirAll(dirs[0], 0o700); err != nil {
		return err
	}
	kernel, err := fsnotify.NewBufferedWatcher(16)
	if err != nil {
		return err
	}
	w := &entryWatch{Watcher: kernel, dirs: dirs, file: file}
	for dir := dirs[0]; len(w.above) == 0 || dir != w.above[len(w.above)-1]; dir = filepath.Dir(dir) {
		w.above = append(w.above, dir)
	}
	if err := w.follow(); err != nil {
		_ = w.Close()
		return err
	}
	for _, dir := range dirs[1:] {
		_ = w.Add(dir)
	}
	go w.run(ctx, changed)
	return nil
}

func (w *entryWatch) run(ctx context.Context, changed func()) {
	defer func() { _ = w.Close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			moved := slices.Contains(w.above, e.Name) && e.Has(fsnotify.Create|fsnotify.Remove|fsnotify.Rename)
			if moved {
				_ = w.follow()
			}
			if (moved || concerns(e, w.dirs, w.file)) && ctx.Err() == nil {
				changed()
			}
		case _, ok := <-w.Errors:
			if !ok {
				return
			}
			_ = w.follow()
			changed() // events were lost: it may be so
		}
	}
}

// follow watches the user's directory as it is now, and the one above it, which
// tells when it is replaced. Each tells of its own end too. While one is missing,
// the lowest that is there is watched for it; not always, for others are busy there.
func (w *entryWatch) follow() error {
	for _, dir := range w.above {
		_ = w.Remove(dir) // it may be another one's by now
	}
	if w.lowest() > 1 {
		return fs.ErrNotExist
	}
	// A link doesn't tell that it leads elsewhere now; where it stands does.
	if info, err := os.Lstat(w.above[1]); err == nil && info.Mode().Type() == fs.ModeSymlink {
		_ = w.Add(w.above[2])
	}
	return w.Add(w.dirs[0])
}

// lowest watches the lowest directory above the user's that is there, and says
// which. It is watched before what is in it is looked at, so that nothing falls
// between the two.
func (w *entryWatch) lowest() int {
	for {
		i := 1
		for i < len(w.above)-1 && errors.Is(w.Add(w.above[i]), fs.ErrNotExist) {
			i++
		}
		if i <= 1 {
			return i
		}
		if _, err := os.Stat(w.above[i-1]); err != nil {
			return i
		}
		_ = w.Remove(w.above[i]) // it has come meanwhile
	}
}

// concerns tells whether an event is about the file, or about the user's directory as a whole.
func concerns(e fsnotify.Event, dirs []string, file string) bool {
	ours := filepath.Base(e.Name) == file && slices.Contains(dirs, filepath.Dir(e.Name))
	return e.Name == dirs[0] || ours && e.Op != fsnotify.Chmod
}
