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
		"socket", "intermission.sock", "instance.lock", "tray-*.lock", "room-[0-9]*",
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
		entries, err := os.ReadDir(place.dir) // not Glob, for which a path can't be quoted on Windows
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, pattern := range place.names {
			for _, entry := range entries {
				if match, _ := filepath.Match(pattern, entry.Name()); !match {
					// What a write left that was cut off has the name of its file in it.
					if match, _ = filepath.Match("."+pattern+".*", entry.Name()); !match {
						continue
					}
				}
				if err := os.Remove(filepath.Join(place.dir, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
