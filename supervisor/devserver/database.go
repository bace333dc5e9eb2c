package devserver

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// The schema of the early kind is recorded from the real server; that of the
// claims kind is it and the changes of OPENCODE.md.
var (
	//go:embed early.sql
	earlySchema string
	//go:embed claims.sql
	claimsSchema string
)

// store is the server's database. Like the real one it has a single synchronous
// connection: while an outside write lock makes it wait, everything waits.
type store struct {
	mu    sync.Mutex // held for each statement or transaction, whole
	db    *sql.DB
	table string // the session table's name
}

// openStore opens path, and creates or upgrades the schema for k.
func openStore(ctx context.Context, path string, k kind) (*store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: url.Values{
		"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)"},
		"_txlock": {"immediate"},
	}.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	st := &store{db: db, table: "session"}
	if k == claims {
		st.table = "session_v2"
	}
	if err := st.migrate(ctx, k); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("cannot prepare the database %s: %w", path, err)
	}
	return st, nil
}

// migrate creates what is missing. An early database is upgraded by a claims server.
func (st *store) migrate(ctx context.Context, k kind) error {
	return st.write(ctx, func(tx *sql.Tx) error {
		has := func(table string) (found bool, err error) {
			err = tx.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?`, table).Scan(&found)
			return found, err
		}
		base, err := has("event")
		if err != nil {
			return err
		}
		if !base {
			if _, err := tx.Exec(earlySchema); err != nil {
				return err
			}
		}
		renamed, err := has("session_v2")
		if err != nil {
			return err
		}
		if k == early && renamed {
			return fmt.Errorf("it was written by a newer version")
		}
		if k == claims && !renamed {
			if _, err := tx.Exec(claimsSchema); err != nil {
				return err
			}
		}
		now := time.Now().UnixMilli()
		_, err = tx.Exec(`INSERT INTO project (id, worktree, time_created, time_updated, sandboxes)
			VALUES ('global', '/', ?, ?, '[]') ON CONFLICT DO NOTHING`, now, now)
		return err
	})
}

// write runs fn in one write transaction.
func (st *store) write(ctx context.Context, fn func(tx *sql.Tx) error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.transact(ctx, fn)
}

// transact is write for a caller that holds the lock.
func (st *store) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := st.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// read runs fn on the connection, outside a transaction.
func (st *store) read(fn func(db *sql.DB) error) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return fn(st.db)
}

// yield waits until the connection is free: the real server has one thread, so
// that no request is served while a statement waits for a lock.
func (st *store) yield() {
	st.mu.Lock()
	defer st.mu.Unlock()
}

// sql puts the session table's name into a statement.
func (st *store) sql(statement string) string {
	return strings.ReplaceAll(statement, "{session}", st.table)
}

func (st *store) close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.db.Close()
}
