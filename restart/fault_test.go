package restart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// coded is an error of SQLite with any code: the driver has no way to make one.
type coded int

func (c coded) Error() string { return fmt.Sprintf("SQLite's %d", int(c)) }
func (c coded) Code() int     { return int(c) }

// TestFaults: only what SQLite has seen in the file is damage.
func TestFaults(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]fault{
		coded(sqlite3.SQLITE_FULL):                faultFull,
		coded(sqlite3.SQLITE_IOERR_SHMSIZE):       faultFull,
		coded(sqlite3.SQLITE_IOERR):               faultDisk,
		coded(sqlite3.SQLITE_IOERR_READ):          faultDisk,
		coded(sqlite3.SQLITE_IOERR_WRITE):         faultDisk,
		coded(sqlite3.SQLITE_IOERR_FSYNC):         faultDisk,
		coded(sqlite3.SQLITE_IOERR_SHMMAP):        faultDisk,
		coded(sqlite3.SQLITE_IOERR_SHMOPEN):       faultDisk,
		coded(sqlite3.SQLITE_IOERR_CORRUPTFS):     faultDisk,
		coded(sqlite3.SQLITE_CANTOPEN):            faultUnwritable,
		coded(sqlite3.SQLITE_CANTOPEN_FULLPATH):   faultUnwritable,
		coded(sqlite3.SQLITE_READONLY):            faultUnwritable,
		coded(sqlite3.SQLITE_READONLY_DIRECTORY):  faultUnwritable,
		coded(sqlite3.SQLITE_READONLY_CANTINIT):   faultUnwritable,
		coded(sqlite3.SQLITE_BUSY_SNAPSHOT):       faultBusy,
		coded(sqlite3.SQLITE_CORRUPT):             faultDamaged,
		coded(sqlite3.SQLITE_CORRUPT_INDEX):       faultDamaged,
		coded(sqlite3.SQLITE_NOTADB):              faultDamaged,
		coded(sqlite3.SQLITE_CONSTRAINT_CHECK):    faultNone,
		coded(sqlite3.SQLITE_INTERRUPT):           faultNone,
		&fs.PathError{Err: syscall.ENOSPC}:        faultFull,
		&fs.PathError{Err: syscall.EDQUOT}:        faultFull,
		&fs.PathError{Err: syscall.EFBIG}:         faultFull,
		&fs.PathError{Err: syscall.EROFS}:         faultReadOnly,
		&fs.PathError{Err: syscall.EACCES}:        faultUnwritable,
		&fs.PathError{Err: syscall.EIO}:           faultDisk,
		context.DeadlineExceeded:                  faultNone,
		errors.New("database disk image is gone"): faultNone,
	} {
		if got := faultOf(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v is %d, not %d", err, got, want)
		}
		if Damaged(err) != (want == faultDamaged) {
			t.Errorf("%v is damage", err)
		}
		said := Explain("/d/ledger.db", err).Error()
		for word, only := range map[string]bool{"damaged": want == faultDamaged, "move it away": want == faultDamaged} {
			if strings.Contains(said, word) != only {
				t.Errorf("%v is said as %q", err, said)
			}
		}
		switch want {
		case faultFull, faultReadOnly, faultUnwritable, faultDisk:
			if !strings.HasSuffix(said, ", then: intermission start") || !strings.Contains(said, "/d") || strings.Count(said, "; ") != 1 {
				t.Errorf("%v is said as %q", err, said)
			}
		case faultDamaged:
			if !strings.Contains(said, "keep it") {
				t.Errorf("%v is said as %q", err, said)
			}
		}
		if twice := Explain("/d/ledger.db", Explain("/d/ledger.db", err)).Error(); twice != said {
			t.Errorf("said twice: %q", twice)
		}
	}
}

// TestADirectoryThatTakesNoLedger: who isn't let in is told so.
func TestADirectoryThatTakesNoLedger(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path, nil)
	if err == nil || strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), "can't be opened") {
		t.Errorf("%v", err)
	}
}

// TestAConsentThatCouldNotBeWrittenDownIsDecidedLater: it isn't seen as under way until we end.
func TestAConsentThatCouldNotBeWrittenDownIsDecidedLater(t *testing.T) {
	for phase, want := range map[string]string{"queued": "ses_1 pending", "resuming": "ses_1 unknown"} {
		t.Run(phase, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *resuming) {
				r.crashes("UPDATE ON session WHEN OLD.phase = '" + phase + "'")
				result, err := r.Resumer.Resume(t.Context(), "ses_1", 5000)
				if err != nil || result.Verdict == VerdictResumed {
					t.Errorf("%+v, %v", result, err)
				}
				if list := r.pending(); list[0].State == StatePending {
					t.Errorf("%+v", list)
				}
				_, err = r.Ledger.db.Exec("DROP TRIGGER crash")
				r.must(err)
				time.Sleep(time.Minute) // of the bubble
				r.wants(want)
			})
		})
	}
}
