package restart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite" // the driver "sqlite"; pure Go, so that every platform is built without a C compiler
)

// Ledger is our own record of who was at work and what a person decided. Its
// methods are safe for concurrent use, by several processes too.
type Ledger struct {
	db   *sql.DB
	path string
	file fs.FileInfo  // what stood at path when it was opened
	size atomic.Int64 // of that file, the greatest that was seen: it never shrinks by itself
	last lastFile
	now  func() time.Time

	undigested atomic.Bool // the table intake may hold something

	mu       sync.Mutex
	onChange func()
}

// Open opens the ledger at path, and makes it (mode 0600, in an existing
// directory) when there is none. A file that is not ours is left as it is, and one
// that lacks what was written to it last is not opened. What a Park took in before
// a crash, it makes suspensions of.
// ErrNewer when a newer intermission has written it.
func Open(path string, now func() time.Time) (*Ledger, error) {
	if err := prepareFile(path); err != nil {
		if done := new(explainedError); faultOf(err) == faultNone && !errors.As(err, &done) {
			err = fmt.Errorf("%w; check that its directory is there and writable", err)
		}
		return nil, fmt.Errorf("cannot open the ledger %s: %w", path, Explain(path, err))
	}
	db, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return nil, fmt.Errorf("cannot open the ledger %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	l := &Ledger{db: db, path: path, now: now}
	if err := l.prepare(); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("cannot open the ledger %s: %w", path, Explain(path, err))
	}
	return l, nil
}

// prepare makes sure that the ledger is sound and whole.
func (l *Ledger) prepare() error {
	ctx := context.Background()
	was, known := loadLast(l.path) // before the ledger is read, for another process may write to both
	if err := prepareSchema(l.path, l.db); err != nil {
		return err
	}
	now, err := checkLast(ctx, l.path, l.db, was, known)
	if err != nil {
		return err
	}
	if l.file, err = os.Stat(l.path); err != nil {
		return err
	}
	os.SameFile(l.file, l.file) // Windows finds out a file's identity only when it is asked for
	l.last.open(l.path)
	l.last.set(now)
	return l.digestLeft(ctx)
}

// prepareFile makes the file, so that it never has a wider mode than 0600, not
// even for a moment. It doesn't open a file that is there: closing it would drop
// the locks that SQLite holds on it in this process.
func prepareFile(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := checkAbsent(path); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil // another process was faster
		}
		if err != nil {
			return err
		}
		return f.Close()
	}
	if err == nil {
		err = checkFile(path, info)
	}
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, 0o600)
	}
	return nil
}

// dataSource gives the driver's name of the file. Every transaction takes the
// write lock at its beginning, so that none fails in its middle; the small cache
// keeps the supervisor small; recursive triggers guard the journal against REPLACE. WAL is set later: it would be written to a file
// that isn't ours.
func dataSource(path string) string {
	q := url.Values{}
	q.Set("_txlock", "immediate")
	for _, p := range []string{"busy_timeout(5000)", "synchronous(FULL)", "cache_size(-512)", "temp_store(MEMORY)", "recursive_triggers(1)"} {
		q.Add("_pragma", p)
	}
	slashed := filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" {
		slashed = "/" + slashed // as sqlite.org/uri.html wants it: file:/C:/…
	}
	u := url.URL{Scheme: "file", OmitHost: true, Path: slashed, RawQuery: q.Encode()}
	return u.String()
}

// Close closes the ledger.
func (l *Ledger) Close() error {
	l.last.close()
	return l.db.Close()
}

// OnChange has f called after each committed change of what is shown. f runs on
// the goroutine that made the change and may call the ledger's reading methods.
func (l *Ledger) OnChange(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onChange = f
}

// tx is one transaction, with the lines of the journal that it will add.
type tx struct {
	*sql.Tx
	ctx   context.Context
	now   int64
	lines []JournalEntry
	shown bool // something changed that is shown
	// loaded holds rows that are being worked on and not saved yet; they count, and not what the file says.
	loaded map[string]*session
}

// change runs f in one transaction, all or none.
func (l *Ledger) change(ctx context.Context, f func(*tx) error) error {
	if err := l.inPlace(); err != nil {
		return err
	}
	sqlTx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return l.located(err)
	}
	defer sqlTx.Rollback() //nolint:errcheck // after Commit it does nothing, and after an error that error counts
	t := &tx{Tx: sqlTx, ctx: ctx, now: l.now().UnixMilli()}
	var before int64
	if err = t.QueryRowContext(ctx, "SELECT total_changes()").Scan(&before); err == nil {
		err = f(t)
	}
	if err == nil {
		err = t.writeJournal()
	}
	var written last
	changed := false
	if err == nil {
		written, changed, err = t.counted(before)
	}
	if err == nil {
		err = l.inPlace() // it may have waited for the lock
	}
	if err == nil {
		err = sqlTx.Commit()
	}
	if err != nil {
		return l.located(err)
	}
	if changed {
		l.last.set(written)
	}
	if t.shown {
		l.changed()
	}
	return nil
}

// inPlace makes sure that what is written can be found again at the next start:
// SQLite goes on to write to a file that was removed.
func (l *Ledger) inPlace() error {
	info, err := os.Stat(l.path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return l.located(err)
	case err != nil || !os.SameFile(info, l.file):
		return fmt.Errorf("the ledger %s was removed or replaced while in use; put it back, or restart intermission to begin a new one", l.path)
	case info.Size() < l.size.Load():
		return fmt.Errorf("the ledger %s was cut short while in use; "+keepAct+", then restart intermission", l.path)
	}
	l.size.Store(info.Size())
	return nil
}

// located gives an error of SQLite or of the system the ledger's path, its meaning and an act.
func (l *Ledger) located(err error) error {
	var done *explainedError
	var e *sqlite.Error
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case faultOf(err) != faultNone:
		return fmt.Errorf("cannot use the ledger %s: %w", l.path, Explain(l.path, err))
	case errors.As(err, &e):
		return fmt.Errorf("cannot use the ledger %s: %w; try again", l.path, err)
	}
	return err
}

func (l *Ledger) changed() {
	l.mu.Lock()
	f := l.onChange
	l.mu.Unlock()
	if f != nil {
		f()
	}
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.ExecContext(t.ctx, query, args...)
	return err
}
