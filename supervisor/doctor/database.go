package doctor

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
	"time"

	"github.com/dustin/go-humanize"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/opencode"
)

// openAside opens a SQLite file to be looked at. While a program has it open, or
// has died with it, its -wal and -shm files are there, and a connection that
// can't write joins them. Otherwise SQLite would make both and leave them; then
// the file is read as it is, without locks.
func openAside(path string) (*sql.DB, error) {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/…
	}
	query := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(2000)", "cache_size(-1024)", "mmap_size(0)"}}
	if !joined(path) {
		query.Set("immutable", "1")
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: slashed, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// joined tells whether a write-ahead log is in use.
func joined(path string) bool {
	_, err := os.Stat(path + "-wal")
	_, err2 := os.Stat(path + "-shm")
	return err == nil && err2 == nil
}

func (p *patient) checkDatabase(ctx context.Context) Check {
	found := p.program()
	if found.Install == nil {
		return skipped("the program isn't known, and so neither where its database is")
	}
	path, err := found.DatabasePath()
	if err != nil {
		detail, act := split(err)
		return failed(act, "%s", detail)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("%s isn't there yet: the server makes it at its first start", path)
	case err != nil:
		return failed("make it readable to you: chmod 600 "+path, "cannot look at the server's database: %v", err)
	case !info.Mode().IsRegular():
		return failed("set OPENCODE_DB to another file", "%s isn't a regular file", path)
	}
	kind, err := shapeOf(ctx, path, found.Generation)
	var unknown *opencode.UnknownShapeError
	switch {
	case errors.As(err, &unknown) && p.otherGeneration(found):
		return failed("take generation out of [server] in "+p.paths.ConfigFile+", then: intermission service restart",
			"%s isn't a database of generation %s, which the configuration names, while the program is of version %s: %s", path, found.Generation, found.Version, unknown.Reason)
	case errors.As(err, &unknown):
		return failed("update intermission, or set OPENCODE_DB to another file", "%s has a shape that intermission doesn't know: %s", path, unknown.Reason)
	case restart.Damaged(err):
		return failed("put back a copy of it, and keep the file: "+path, "%s", err)
	case err != nil:
		if meant := restart.Explain(path, err); meant.Error() != err.Error() {
			detail, act := split(meant)
			return failed(act, "%s: %s", path, detail)
		}
		return failed("make it readable to you, and make room in "+os.TempDir(), "%s", err)
	}
	return ok("%s, %s, shape %s", path, humanize.Bytes(uint64(info.Size())), kind)
}

// otherGeneration tells whether the configuration names a generation that the
// program's version contradicts.
func (p *patient) otherGeneration(found program) bool {
	named := p.config.Server.Generation
	if named == "" || named == "auto" {
		return false
	}
	major, _, _ := strings.Cut(found.Version, ".")
	return (major == "1" || major == "2") && "v"+major != string(found.Generation)
}

// shapeOf tells the kind of a server's database. One that no program has open is
// looked at without touching it: what opens it would leave files beside it. Only
// its tables matter, and so a copy of these is what is looked at then.
func shapeOf(ctx context.Context, path string, gen opencode.Generation) (string, error) {
	at := path
	if !joined(path) {
		dir, err := os.MkdirTemp("", "intermission-doctor-")
		if err != nil {
			return "", fmt.Errorf("cannot copy its tables: %v", err) //nolint:errorlint // it is another disk's
		}
		defer os.RemoveAll(dir)
		at = filepath.Join(dir, "tables.db")
		if err := copyTables(ctx, path, at); err != nil {
			return "", fmt.Errorf("cannot read the server's database %s: %w", path, err)
		}
	}
	db, err := opencode.OpenDatabase(at, gen)
	if err != nil {
		return "", err
	}
	defer db.Close()
	return db.Kind(), nil
}

// copyTables makes a database with the tables of another, empty.
func copyTables(ctx context.Context, from, to string) error {
	source, err := openAside(from)
	if err != nil {
		return err
	}
	defer source.Close()
	rows, err := source.QueryContext(ctx, `SELECT sql FROM sqlite_master
		WHERE type = 'table' AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND sql NOT LIKE 'CREATE VIRTUAL%'`)
	if err != nil {
		return err
	}
	defer rows.Close()
	target, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(to)}).String())
	if err != nil {
		return err
	}
	defer target.Close()
	for rows.Next() {
		var create string
		if err := rows.Scan(&create); err != nil {
			return err
		}
		if _, err := target.ExecContext(ctx, create); err != nil {
			return fmt.Errorf("cannot copy its tables: %v", err) //nolint:errorlint // it is another disk's
		}
	}
	return rows.Err()
}

func (p *patient) checkLedger(ctx context.Context) Check {
	path := p.paths.Ledger
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok("%s isn't there yet: it is made at the first start", path)
	case err != nil:
		return refused("chmod 700 "+filepath.Dir(path), filepath.Dir(path), fmt.Errorf("cannot look at the ledger: %w", err))
	case !info.Mode().IsRegular():
		return failed("move it away", "%s isn't a regular file", path)
	}
	if err := platform.CheckWritable(path); err != nil {
		return refused("chmod 600 "+path, filepath.Dir(path), fmt.Errorf("without it no server is started: %w", err))
	}
	counts, err := lookAtLedger(ctx, path)
	if err != nil {
		detail, act := split(err)
		return failed(act, "%s", detail)
	}
	if err := platform.CheckPrivate(path); err != nil {
		detail, act := split(err)
		return warning(act, "%s", detail)
	}
	return ok("%s, %s, %d wait for consent", path, humanize.Bytes(uint64(info.Size())), counts.Pending)
}

// lookAtLedger checks the pages of the ledger, and then opens a copy of it as the
// supervisor would open the ledger itself, which may bring it to a newer form.
func lookAtLedger(ctx context.Context, path string) (restart.Counts, error) {
	dir, err := os.MkdirTemp("", "intermission-doctor-")
	if err != nil {
		return restart.Counts{}, fmt.Errorf("cannot copy the ledger: %w; make room in %s", err, os.TempDir())
	}
	defer os.RemoveAll(dir)
	at := filepath.Join(dir, "ledger.db")
	if err := copyLedger(ctx, path, at); err != nil {
		return restart.Counts{}, err
	}
	ledger, err := restart.Open(at, time.Now)
	if err != nil {
		return restart.Counts{}, errors.New(strings.ReplaceAll(err.Error(), at, path))
	}
	defer ledger.Close()
	return ledger.Counts(ctx)
}

func copyLedger(ctx context.Context, from, to string) error {
	db, err := openAside(from)
	if err != nil {
		return fmt.Errorf("cannot open the ledger %s: %w; make it readable: chmod 600 %s", from, err, from)
	}
	defer db.Close()
	if err := restart.CheckPages(ctx, from, db); err != nil {
		return fmt.Errorf("cannot use the ledger %s: %w", from, err)
	}
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, to); err != nil {
		return fmt.Errorf("cannot copy the ledger %s: %w; make room in %s", from, err, os.TempDir())
	}
	return os.Chmod(to, 0o600)
}

// newestEntry is the time of the last line of the ledger's journal; zero for none.
func newestEntry(ctx context.Context, path string) (time.Time, error) {
	if _, err := os.Stat(path); err != nil {
		return time.Time{}, err
	}
	db, err := openAside(path)
	if err != nil {
		return time.Time{}, err
	}
	defer db.Close()
	var at sql.NullInt64
	if err := db.QueryRowContext(ctx, `SELECT max(time) FROM journal`).Scan(&at); err != nil || !at.Valid {
		return time.Time{}, err
	}
	return time.UnixMilli(at.Int64), nil
}

// Room that is needed: for the ledger to be written, and for the server's own database.
const (
	roomFailed  = 50 << 20
	roomWarning = 500 << 20
)

func (p *patient) checkDisk(context.Context) Check {
	free, err := platform.FreeSpace(p.paths.State)
	if err != nil {
		return failed("look at the disk of "+p.paths.State, "%s", err)
	}
	return judgeRoom(free, p.paths.State)
}

func judgeRoom(free uint64, dir string) Check {
	act := "make room on the disk of " + dir
	switch {
	case free < roomFailed:
		return failed(act, "%s are left: what can't be written to the ledger is not started", humanize.Bytes(free))
	case free < roomWarning:
		return warning(act, "%s are left", humanize.Bytes(free))
	}
	return ok("%s are left", humanize.Bytes(free))
}
