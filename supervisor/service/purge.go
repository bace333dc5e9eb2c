package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"intermission/platform"
)

// ours are the names of the files that intermission makes in its state and runtime
// directory, and in its log directory. A directory may be one that the user has
// named, with other things in it: only these are removed.
var (
	ours = []string{
		"ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-last", "wish", "program.json", "server.json", "environment.json",
		"socket", "intermission.sock", "instance.lock", "tray-*.lock", "room-*",
	}
	oursLogs = []string{"intermission*.log*", "server*.log*", "tray*.log*", "start.log", "launchd.log"}
)

// purgeFiles removes what is ours, and the directories where they are empty then.
func purgeFiles(p platform.Paths) error {
	var errs []error
	for _, place := range []struct {
		dir   string
		names []string
	}{{p.Log, oursLogs}, {p.State, ours}, {p.Runtime, ours}} {
		for _, pattern := range place.names {
			paths, err := filepath.Glob(filepath.Join(globLiteral(place.dir), pattern))
			errs = append(errs, err)
			for _, path := range paths {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
			}
		}
		_ = os.Remove(place.dir) // it fails where something else is in it, which stays
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the service is gone, and some of its files can't be removed: %w", err)
	}
	return nil
}

// globLiteral quotes a directory's name for Glob.
func globLiteral(dir string) string {
	var b []rune
	for _, r := range dir {
		if r == '*' || r == '?' || r == '[' || r == '\\' && filepath.Separator != '\\' {
			b = append(b, '\\')
		}
		b = append(b, r)
	}
	return string(b)
}
