package opencode

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"intermission/restart"
)

var _ restart.Database = (*Database)(nil)

// Database is the server's own database: read beside a running server, written
// only by Clear. Its methods may be called at the same time.
//
// It keeps one read connection for its life. POSIX locks belong to the process,
// so one that opened, copied or hashed the live file by another way and closed
// it would drop SQLite's locks under the server's feet: nothing else of this
// process may. The connection can't write, and so it never checkpoints; and
// while it is open no writer of this process is the last to close the file,
// so that the end of Clear doesn't copy a large WAL back under a lock either.
// That is left to the server, which does it as it goes; for the same reason the
// -wal file stays when a server ends while we look.
//
// A file that isn't there is not created: it is opened when it has appeared,
// and again when it was replaced by another.
type Database struct {
	path   string
	gen    Generation
	budget time.Duration // for which Clear may hold the write lock

	mu      sync.Mutex // guards what follows, and serialises reads
	closed  bool
	pool    *sql.DB     // nil while the file is absent
	conn    *sql.Conn   // its one connection, held
	file    os.FileInfo // what the path named just before it was opened
	shape   shape
	schema  int64 // PRAGMA schema_version for which shape was found
	version int64 // PRAGMA data_version that Changed saw last; 0 before
	swept   swept

	clearing sync.Mutex // one Clear at a time; taken before mu
	lastHeld atomic.Int64
}

// OpenDatabase opens the database at path, which a server of generation gen
// runs on. Absence of the file is no error (Kind says so). A database with a
// shape that we don't know is an *UnknownShapeError.
func OpenDatabase(path string, gen Generation) (*Database, error) {
	if gen != V1 && gen != V2 {
		return nil, fmt.Errorf("cannot open the server's database %s: unknown generation %q", path, gen)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("cannot open the server's database %s: not an absolute path", path)
	}
	d := &Database{path: path, gen: gen, budget: lockBudget, shape: shape{kind: KindAbsent}}
	if err := d.read(context.Background(), func(querier, shape) error { return nil }); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close lets go of the file. Every later call fails.
func (d *Database) Close() error {
	d.clearing.Lock() // a Clear under way must not become the file's last connection
	defer d.clearing.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return d.release()
}

// Kind is what the database was when it was last looked at: KindAbsent, KindV1,
// KindEarly or KindClaims. An absent one is looked at again.
func (d *Database) Kind() string {
	d.mu.Lock()
	kind := d.shape.kind
	d.mu.Unlock()
	if kind != KindAbsent {
		return kind
	}
	// A failure leaves the kind as it was; whoever needs the content is told.
	_ = d.read(context.Background(), func(querier, shape) error { return nil })
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shape.kind
}

// Changed tells whether another connection has committed to the database since
// the last call, or whether this is the first call since it was opened. It costs
// a few microseconds and takes no lock that a writer would wait for.
func (d *Database) Changed(ctx context.Context) (bool, error) {
	changed := false
	err := d.read(ctx, func(q querier, s shape) error {
		if s.kind == KindAbsent {
			return nil
		}
		version, err := dataVersion(ctx, q)
		if err != nil {
			return err
		}
		changed, d.version = version != d.version, version
		return nil
	})
	return changed, err
}

// LastHeld is for how long the last Clear held the write lock at a time.
// For that long a server on this file would have been frozen.
func (d *Database) LastHeld() time.Duration { return time.Duration(d.lastHeld.Load()) }

// read calls f inside one short read transaction, with the shape as it is in
// it: a server that is upgraded changes it under us. q is nil when s is absent.
func (d *Database) read(ctx context.Context, f func(q querier, s shape) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.readNow(ctx, f)
	if halfWritten(err) {
		if err = d.rollBack(ctx); err == nil {
			err = d.readNow(ctx, f)
		}
	}
	return d.explain(err)
}

func (d *Database) readNow(ctx context.Context, f func(q querier, s shape) error) error {
	err := d.reopen(ctx)
	switch {
	case err != nil:
		return err
	case d.conn == nil:
		return f(nil, d.shape)
	}
	return d.transact(ctx, f)
}

// halfWritten says that a server was killed while it wrote the database otherwise than
// by its WAL, which it does only while it makes it. Nobody who only reads can read that.
func halfWritten(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code() == sqlite3.SQLITE_READONLY_ROLLBACK
}

// rollBack has SQLite undo what is half written, by the journal beside it. It does so
// only while nobody writes, and a server would do just that before anything else: but
// none is started as long as we can't read.
func (d *Database) rollBack(ctx context.Context) error {
	pool, err := sql.Open("sqlite", dsn(d.path, "rw", 256, "busy_timeout(2000)"))
	if err != nil {
		return err
	}
	var version int64
	err = pool.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&version)
	return errors.Join(err, pool.Close())
}

func (d *Database) transact(ctx context.Context, f func(q querier, s shape) error) error {
	if _, err := d.conn.ExecContext(ctx, `BEGIN`); err != nil {
		return err
	}
	// Nothing was written: this only ends the snapshot, and must even when ctx is over.
	defer func() { _, _ = d.conn.ExecContext(context.WithoutCancel(ctx), `ROLLBACK`) }()
	var schema int64
	if err := d.conn.QueryRowContext(ctx, `PRAGMA schema_version`).Scan(&schema); err != nil {
		return err
	}
	if schema != d.schema || d.shape.kind == KindAbsent {
		found, err := detect(ctx, d.conn, d.path, d.gen)
		if err != nil {
			return err
		}
		d.shape, d.schema = found, schema
	}
	return f(d.conn, d.shape)
}

// reopen makes sure that conn is of the file that the path names now.
func (d *Database) reopen(ctx context.Context) error {
	if d.closed {
		return errors.New("it was closed")
	}
	file, err := os.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.release()
	}
	if err != nil {
		return err
	}
	if d.conn != nil && os.SameFile(file, d.file) {
		return nil
	}
	if err := d.release(); err != nil {
		return err
	}
	// The cache is small because the supervisor is (25 MB in all). 2 s rides out the moments in which a reader must wait: recovery of the WAL
	// after a kill, and a change of the journal mode.
	d.pool, err = sql.Open("sqlite", dsn(d.path, "ro", 256, "busy_timeout(2000)", "query_only(1)"))
	if err != nil {
		return err
	}
	if d.conn, err = d.pool.Conn(ctx); err != nil {
		return errors.Join(err, d.release())
	}
	// Looked at before the opening: if it was replaced in between, the next call sees it.
	d.file = file
	return nil
}

// release closes what is open.
func (d *Database) release() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}
	if d.pool != nil {
		err = errors.Join(err, d.pool.Close())
	}
	d.pool, d.conn, d.file = nil, nil, nil
	d.shape, d.schema, d.version, d.swept = shape{kind: KindAbsent}, 0, 0, swept{}
	return err
}

// explain names the database in an error of SQLite, and tells what can't be
// parsed from what can't be read.
func (d *Database) explain(err error) error {
	var unknown *UnknownShapeError
	switch {
	case err == nil, errors.Is(err, restart.ErrChanged), errors.As(err, &unknown):
		return err
	case strings.Contains(err.Error(), "malformed JSON"), strings.Contains(err.Error(), "JSON cannot hold BLOB"):
		return &UnknownShapeError{Path: d.path, Reason: "a column that should hold JSON doesn't"}
	}
	return fmt.Errorf("cannot read the server's database %s: %w", d.path, restart.ExplainServers(d.path, err))
}

// dsn is the driver's name for path, with a cache of so many kB. Nothing is
// mapped: the server may truncate the file under us.
func dsn(path, mode string, cache int, pragmas ...string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	query := url.Values{
		"mode":    {mode},
		"_pragma": append([]string{fmt.Sprintf("cache_size(-%d)", cache), "mmap_size(0)"}, pragmas...),
	}
	return (&url.URL{Scheme: "file", Path: slashed, RawQuery: query.Encode()}).String()
}

// busy tells whether err means that another connection holds the lock.
func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && (e.Code()&0xff == sqlite3.SQLITE_BUSY || e.Code()&0xff == sqlite3.SQLITE_LOCKED)
}
