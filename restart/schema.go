package restart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const (
	// schemaVersion is PRAGMA user_version of a ledger that this program writes.
	schemaVersion = 3
	// applicationID is PRAGMA application_id, "IntM": it tells a ledger from other SQLite files.
	applicationID = 0x496e744d
)

// migrations bring a ledger from version i to i+1.
var migrations = [schemaVersion]string{schema1, schema2, schema3}

const schema1 = `
CREATE TABLE incarnation (
	id         TEXT PRIMARY KEY,
	generation TEXT NOT NULL,
	database   TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at   INTEGER
) STRICT;

-- One row a session. A live claim has time_claimed, no time_suspended and no phase.
CREATE TABLE session (
	id             TEXT PRIMARY KEY,
	parent_id      TEXT NOT NULL DEFAULT '',
	generation     TEXT NOT NULL DEFAULT '',
	database       TEXT NOT NULL DEFAULT '',
	incarnation    TEXT NOT NULL DEFAULT '', -- of the claim, or of the claim that became the suspension
	time_claimed   INTEGER,                  -- when its execution started, or the server's own time of a parked claim
	attempts       INTEGER NOT NULL DEFAULT 0,
	time_seen      INTEGER NOT NULL DEFAULT 0, -- newest event that was applied
	time_suspended INTEGER,
	last_suspended INTEGER NOT NULL DEFAULT 0, -- greatest time_suspended ever given
	cause          TEXT NOT NULL DEFAULT '',
	mark           TEXT NOT NULL DEFAULT '',
	phase          TEXT NOT NULL DEFAULT '' CHECK (phase IN ('', 'queued', 'resuming', 'covered', 'unknown')),
	consumed       INTEGER NOT NULL DEFAULT 0, -- the suspension that a consent has consumed, until its outcome is known
	consent        INTEGER NOT NULL DEFAULT 0, -- consents ever given
	covered_by     TEXT NOT NULL DEFAULT '',   -- phase covered: consumed together with this session
	reason         TEXT NOT NULL DEFAULT '',
	resumes        INTEGER NOT NULL DEFAULT 0,
	ours           INTEGER NOT NULL DEFAULT 0, -- the claim is of a resume of ours
	waiting        TEXT NOT NULL DEFAULT '',
	shown          INTEGER NOT NULL DEFAULT 0, -- the suspension that was last shown
	confirmed      INTEGER NOT NULL DEFAULT 0, -- its claim or job stood in the server's database when the incarnation had ended
	last_claimed   INTEGER NOT NULL DEFAULT 0, -- time_claimed of the suspension that ended last
	described      INTEGER NOT NULL DEFAULT 0, -- the suspension that the description was made for
	description    TEXT                        -- the last that was known
) STRICT, WITHOUT ROWID;
CREATE INDEX session_time_suspended ON session(time_suspended) WHERE time_suspended IS NOT NULL;
CREATE INDEX session_live ON session(id) WHERE time_claimed IS NOT NULL AND time_suspended IS NULL AND phase = '';
CREATE INDEX session_phase ON session(phase) WHERE phase <> '';

-- What was read from a server's database to be cleared there, as JSON, until it is digested.
CREATE TABLE intake (
	seq     INTEGER PRIMARY KEY,
	time    INTEGER NOT NULL,
	content TEXT NOT NULL
) STRICT;

-- Claims and jobs as they stood in the server's database. Never deleted.
CREATE TABLE parked (
	seq         INTEGER PRIMARY KEY,
	database    TEXT NOT NULL,
	kind        TEXT NOT NULL CHECK (kind IN ('claim', 'job')),
	key         TEXT NOT NULL, -- claim: the session; job: its key in the server's database
	session     TEXT NOT NULL,
	claimed_at  INTEGER NOT NULL DEFAULT 0,
	attempts    INTEGER NOT NULL DEFAULT 0,
	job         TEXT NOT NULL DEFAULT '', -- job: its kind
	child       TEXT NOT NULL DEFAULT '',
	text        TEXT NOT NULL DEFAULT '',
	status      TEXT NOT NULL DEFAULT '',
	raw         TEXT NOT NULL,
	time_parked INTEGER NOT NULL,
	done_at     INTEGER  -- job: when its session was told of it, or was settled or dismissed
) STRICT;
CREATE INDEX parked_key ON parked(key, claimed_at);
CREATE INDEX parked_job ON parked(session) WHERE kind = 'job' AND done_at IS NULL;

CREATE TABLE journal (
	seq            INTEGER PRIMARY KEY,
	time           INTEGER NOT NULL,
	session        TEXT NOT NULL,
	time_suspended INTEGER NOT NULL,
	what           TEXT NOT NULL,
	detail         TEXT NOT NULL
) STRICT;
CREATE INDEX journal_session ON journal(session, seq);
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is only ever added to'); END;
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal BEGIN SELECT RAISE(ABORT, 'the journal is only ever added to'); END;
`

const schema2 = `
ALTER TABLE session ADD COLUMN obstacle TEXT NOT NULL DEFAULT '' CHECK (obstacle IN ('', 'absent', 'elsewhere'));
ALTER TABLE session ADD COLUMN time_known INTEGER NOT NULL DEFAULT 0; -- when we first heard of it
`

const schema3 = `
-- Which ledger it is, and how often it was changed: see last.go.
CREATE TABLE written (one INTEGER PRIMARY KEY CHECK (one = 1), ledger TEXT NOT NULL, changes INTEGER NOT NULL) STRICT;
INSERT INTO written VALUES (1, lower(hex(randomblob(16))), 0);
`

// prepareSchema makes sure that the file is a sound ledger of this version, and
// writes nothing to one that isn't.
func prepareSchema(path string, db *sql.DB) error {
	ctx := context.Background()
	fresh, err := inspect(ctx, db)
	if err != nil {
		return err
	}
	// Kept in the file; safe against power loss together with synchronous=FULL.
	if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	if err := CheckPages(ctx, path, db); err != nil || !fresh {
		return err
	}
	return migrate(ctx, db)
}

// inspect tells whether the file still needs a migration.
func inspect(ctx context.Context, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}) (fresh bool, err error) {
	var version, application, tables int
	err = q.QueryRowContext(ctx, `SELECT (SELECT user_version FROM pragma_user_version),
		(SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)`).
		Scan(&version, &application, &tables)
	switch {
	case err != nil:
		return false, err
	case tables == 0 && application == 0 && version == 0:
		return true, nil
	case application != applicationID:
		return false, errors.New("it is a database of another program; move it away or set INTERMISSION_STATE_DIR to another directory")
	case version > schemaVersion:
		return false, fmt.Errorf("%w (its version is %d, this program knows %d); install the newer program again", ErrNewer, version, schemaVersion)
	}
	return version < schemaVersion, nil
}

// migrate looks again under the write lock: several processes may open a new ledger at once.
func migrate(ctx context.Context, db *sql.DB) error {
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback() //nolint:errcheck // after Commit it does nothing
	fresh, err := inspect(ctx, t)
	if err != nil || !fresh {
		return err
	}
	var version int
	if err := t.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	for _, m := range migrations[version:] {
		if _, err := t.ExecContext(ctx, m); err != nil {
			return fmt.Errorf("cannot make its tables: %w", err)
		}
	}
	if _, err := t.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d; PRAGMA application_id = %d", schemaVersion, applicationID)); err != nil {
		return err
	}
	return t.Commit()
}
