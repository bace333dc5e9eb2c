package service

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"intermission/platform"
)

// A directory may be one that the user has named, with other things in it.
func TestPurgeRemovesOursOnly(t *testing.T) {
	for _, name := range []string{"plain", "with [brackets] and *"} {
		state := filepath.Join(t.TempDir(), name)
		p := platform.Paths{State: state, Log: filepath.Join(state, "log"), Runtime: filepath.Join(state, "run"), Ledger: filepath.Join(state, "ledger.db")}
		theirs := []string{filepath.Join(state, "thesis.tex"), filepath.Join(p.Log, "other.log"), filepath.Join(state, "ledger.db.backup"), filepath.Join(state, "room-notes.txt")}
		of := []string{
			p.Ledger, p.Ledger + "-wal", filepath.Join(state, "wish"), filepath.Join(state, "room-123"), filepath.Join(state, "server.json"), filepath.Join(state, ".server.json.4711"), filepath.Join(state, ".environment.json.12"), p.SocketRecord(),
			filepath.Join(p.Log, "intermission.log"), filepath.Join(p.Log, "server-2026-11-30T22-00-00.000.log.gz"), filepath.Join(p.Runtime, "tray-1.lock"),
		}
		for _, path := range slices.Concat(theirs, of) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := purgeFiles(p); err != nil {
			t.Fatal(err)
		}
		for _, path := range theirs {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("not ours, and gone: %v", err)
			}
		}
		for _, path := range append(of, p.Runtime) {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("ours, and left: %s", path)
			}
		}
	}
}

func TestPurgeOfNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	if err := purgeFiles(platform.Paths{State: dir, Log: filepath.Join(dir, "log"), Runtime: dir}); err != nil {
		t.Error(err)
	}
}
