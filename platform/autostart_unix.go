//go:build unix

package platform

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watchEntry watches a file by its name in several directories. The first is the
// user's: it is made when it isn't there, and found again when it was replaced.
// The others are watched if they are there now.
func watchEntry(ctx context.Context, dirs []string, file string, changed func()) error {
	if err := os.MkdirAll(dirs[0], 0o700); err != nil {
		return err
	}
	w, err := fsnotify.NewBufferedWatcher(16)
	if err != nil {
		return err
	}
	// The directory above tells when the user's is replaced.
	err = w.Add(filepath.Dir(dirs[0]))
	if err == nil {
		err = w.Add(dirs[0])
	}
	if err != nil {
		_ = w.Close()
		return err
	}
	for _, dir := range dirs[1:] {
		_ = w.Add(dir)
	}
	go func() {
		defer func() { _ = w.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				if e.Name == dirs[0] && e.Has(fsnotify.Create) {
					_ = w.Add(dirs[0])
				}
				if concerns(e, dirs, file) && ctx.Err() == nil {
					changed()
				}
			case _, ok := <-w.Errors:
				if !ok {
					return
				}
				changed() // events were lost: it may be so
			}
		}
	}()
	return nil
}

// concerns tells whether an event is about the file, or about the user's directory as a whole.
func concerns(e fsnotify.Event, dirs []string, file string) bool {
	ours := filepath.Base(e.Name) == file && slices.Contains(dirs, filepath.Dir(e.Name))
	return e.Name == dirs[0] || ours && e.Op != fsnotify.Chmod
}
