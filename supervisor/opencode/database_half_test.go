package opencode

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
)

// TestReadingWhatAKillLeftHalfWritten kills a server, so to speak, in the middle of a
// write that isn't by its WAL: what is left has to be rolled back before anybody can read it.
func TestReadingWhatAKillLeftHalfWritten(t *testing.T) {
	t.Parallel()
	for _, made := range []bool{true, false} { // its tables were there, or were being made
		dir := t.TempDir()
		path := filepath.Join(dir, "live.db")
		db, err := sql.Open("sqlite", dsn(path, "rwc", 16, "journal_mode(DELETE)"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		statements := []string{"BEGIN IMMEDIATE", schemaOf(t, KindClaims)}
		if made {
			statements = []string{schemaOf(t, KindClaims),
				"INSERT INTO kv (key, value, time_created, time_updated) VALUES ('job.background/n1', '{}', 1, 1)", "BEGIN IMMEDIATE"}
		}
		statements = append(statements, // more than the cache holds, so that the file is written before the commit
			"DELETE FROM kv",
			"INSERT INTO kv (key, value, time_created, time_updated) WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i+1 FROM n WHERE i < 300) SELECT i, hex(zeroblob(4000)), 1, 1 FROM n")
		for _, statement := range statements {
			if _, err := db.Exec(statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		left := filepath.Join(dir, "opencode.db")
		for _, suffix := range []string{"-journal", ""} {
			content, err := os.ReadFile(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(left+suffix, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d, err := OpenDatabase(left, V2)
		if err != nil {
			t.Fatalf("made %v: %v", made, err)
		}
		defer d.Close()
		sweep, err := d.Sweep(t.Context())
		if err != nil {
			t.Fatalf("made %v: %v", made, err)
		}
		if made != (len(sweep.Jobs) == 1) || made != (d.Kind() == KindClaims) {
			t.Errorf("made %v: %s with %+v", made, d.Kind(), sweep)
		}
	}
}
