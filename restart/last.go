package restart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// lastSuffix ends the name of the file beside the ledger that says what was written
// to it last. SQLite opens a ledger without its -wal file, with a part of that, or
// an older copy as if nothing were missing; this tells.
const lastSuffix = "-last"

// last is which ledger was written, and how many changes it held then.
type last struct {
	ledger  string
	changes int64
}

// lastLength is that of the content: a write of so few bytes at the beginning of a
// file is whole or not done, and takes no room on a disk that is full.
const lastLength = 32 + 1 + 16 + 1

func (w last) String() string { return fmt.Sprintf("%-32s %016x\n", w.ledger, w.changes) }

// loadLast gives what was written last; not ok when that isn't known. It is not
// made durable at each change: it may be older than the ledger, and is never newer.
func loadLast(path string) (w last, ok bool) {
	info, err := os.Lstat(path + lastSuffix)
	if err != nil || !info.Mode().IsRegular() || info.Size() != lastLength {
		return w, false
	}
	content, err := os.ReadFile(path + lastSuffix)
	if err != nil {
		return w, false
	}
	n, err := fmt.Sscanf(string(content), "%32s %16x\n", &w.ledger, &w.changes)
	return w, err == nil && n == 2 && w.String() == string(content)
}

// lastFile keeps what was written last. It is best effort: without it less is noticed.
type lastFile struct {
	mu      sync.Mutex
	f       *os.File // nil when it can't be had
	changes int64
}

func (k *lastFile) open(path string) {
	if info, err := os.Lstat(path + lastSuffix); err == nil && !info.Mode().IsRegular() {
		return // not ours
	}
	if f, err := os.OpenFile(path+lastSuffix, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		k.f = f
	}
}

func (k *lastFile) set(w last) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.f == nil || w.changes < k.changes {
		return
	}
	k.changes = w.changes
	_, _ = k.f.WriteAt([]byte(w.String()), 0)
}

func (k *lastFile) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.f != nil {
		_ = k.f.Close()
		k.f = nil
	}
}

// checkFile makes sure that what stands at path can be a ledger, before SQLite sees
// it: that takes an empty file for a new database, and removes its -wal file.
func checkFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return explained("it is no file (it can't be opened: %s); put back the ledger, or move away what is there to begin a new one", info.Mode())
	}
	if info.Size() > 0 {
		return nil
	}
	_, written := loadLast(path)
	if !written && !holdsAnything(path+"-wal") {
		return nil // made in this moment, by another process too, or just before a crash
	}
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		return nil
	}
	return explained("it was emptied; put back a copy of it, or move it and its -wal file away to begin a new one")
}

// checkAbsent makes sure that a ledger which isn't there may be begun anew.
func checkAbsent(path string) error {
	if holdsAnything(path + "-wal") {
		return explained("it is missing, but what was written to it last is there, in its -wal file; put back the ledger, or move that file away too to begin a new one")
	}
	// What was written last was written to another one, which a person moved away.
	if err := os.Remove(path + lastSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func holdsAnything(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// checkLast makes sure that the ledger is the one that was written last, whole.
// was is what loadLast gave before the ledger was opened.
func checkLast(ctx context.Context, path string, db *sql.DB, was last, known bool) (now last, err error) {
	if err := db.QueryRowContext(ctx, "SELECT ledger, changes FROM written").Scan(&now.ledger, &now.changes); err != nil {
		return now, err
	}
	if known && (now.ledger != was.ledger || now.changes < was.changes) {
		return now, explained("it is older than what was written to it last, or another one: a copy was put in its place, or its -wal file was lost; put back the newest, with its -wal file, or go on with this one by removing %s", path+lastSuffix)
	}
	return now, nil
}

// counted counts a change of the ledger, if there was any since the connection had
// made so many.
func (t *tx) counted(before int64) (now last, changed bool, err error) {
	err = t.QueryRowContext(t.ctx, "UPDATE written SET changes = changes + 1 WHERE total_changes() <> ? RETURNING ledger, changes", before).
		Scan(&now.ledger, &now.changes)
	if errors.Is(err, sql.ErrNoRows) {
		return now, false, nil
	}
	return now, err == nil, err
}
