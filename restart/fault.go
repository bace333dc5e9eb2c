package restart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	sqlite3 "modernc.org/sqlite/lib"
)

// fault is what an error says about a database's file.
type fault int

const (
	faultNone       fault = iota // nothing: a cancelled question, or an error of ours
	faultBusy                    // another program is writing
	faultFull                    // no room on the disk
	faultReadOnly                // the file system is read-only
	faultUnwritable              // file or directory can't be opened or written
	faultDisk                    // the system fails to read or write; for want of room too
	faultDamaged                 // what is in the file is proven to be bad
)

// faultOf classifies an error of SQLite (sqlite.org/rescode.html) or of the system.
// Only what SQLite has seen in the file itself is damage: a disk that is full,
// read-only or failing says nothing of what is on it.
func faultOf(err error) fault {
	for _, e := range []struct {
		is   error
		what fault
	}{
		{syscall.ENOSPC, faultFull},
		{syscall.EDQUOT, faultFull},
		{syscall.EFBIG, faultFull}, // a limit on the size of files
		{syscall.EROFS, faultReadOnly},
		{syscall.EIO, faultDisk},
		{fs.ErrPermission, faultUnwritable},
	} {
		if errors.Is(err, e.is) {
			return e.what
		}
	}
	var e interface{ Code() int } // *sqlite.Error
	if !errors.As(err, &e) {
		return faultNone
	}
	switch e.Code() {
	case sqlite3.SQLITE_IOERR_SHMSIZE: // there is no room for the file -shm
		return faultFull
	case sqlite3.SQLITE_CANTOPEN_SYMLINK, sqlite3.SQLITE_CANTOPEN_ISDIR:
		return faultUnwritable
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return faultBusy
	case sqlite3.SQLITE_FULL:
		return faultFull
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return faultUnwritable
	case sqlite3.SQLITE_IOERR:
		return faultDisk
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return faultDamaged
	}
	return faultNone
}

// Damaged tells whether an error of SQLite is proof that what is in the file is bad.
func Damaged(err error) bool { return faultOf(err) == faultDamaged }

// explainedError is an error with its meaning and its act.
type explainedError struct{ error }

func (e *explainedError) Unwrap() error { return e.error }

func explained(format string, args ...any) error {
	return &explainedError{fmt.Errorf(format, args...)}
}

// ThenStart ends acts after which a running supervisor is to be told to go on.
const ThenStart = ", then: intermission start"

// Explain gives an error of SQLite, or of the system, about the ledger at path its
// meaning and one act, after the last "; "; another error is given back as it is.
// Damaged is said only of what SQLite has seen in the file itself.
func Explain(path string, err error) error {
	return explain(path, err, ThenStart,
		func() error { return explained("another program is writing to it (%w); try again", err) },
		func() error { return explained("it is damaged (%w); "+keepAct, err) })
}

// ExplainServers is Explain for the database of a server at path, which isn't ours,
// and for what we note of the server: what failed on it is tried again by itself.
func ExplainServers(path string, err error) error {
	return explain(path, err, "",
		func() error {
			return explained("it is locked by another process (%w); see who it is with: fuser %s", err, path)
		},
		func() error {
			return explained("it is damaged (%w); put back a sound copy of %s, or what SQLite's .recover makes of it", err, path)
		})
}

// explain words what has to do with the disk; then ends each of its acts.
func explain(path string, err error, then string, busy, damaged func() error) error {
	var done *explainedError
	if errors.As(err, &done) {
		return err
	}
	dir := filepath.Dir(path)
	switch faultOf(err) {
	case faultNone:
	case faultBusy:
		return busy()
	case faultFull:
		return explained("its disk is full (%w); make room on the disk of %s%s", err, dir, then)
	case faultReadOnly:
		return explained("its file system is read-only (%w); make that of %s writable%s", err, dir, then)
	case faultUnwritable:
		return explained("it can't be opened or written (%w); make %s and what is in it writable to you, with room on its disk%s", err, dir, then)
	case faultDisk:
		return explained("its disk can't be read or written (%w); make room on the disk of %s, and see that it is sound%s", err, dir, then)
	case faultDamaged:
		return damaged()
	}
	return err
}

// keepAct is the act where the file is bad: a person may still get something out of it.
const keepAct = "put back a copy of it, or move it away to begin a new one and keep it: the suspensions are in it"

// CheckPages makes sure, with SQLite's quick_check, that the pages of an open ledger
// at path are sound. Its errors are as Explain has them.
func CheckPages(ctx context.Context, path string, db *sql.DB) error {
	var result string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&result); err != nil {
		return Explain(path, err)
	}
	if result != "ok" {
		return explained("it is damaged (%s); "+keepAct, result)
	}
	return nil
}
