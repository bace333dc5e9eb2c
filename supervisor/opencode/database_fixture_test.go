package opencode

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// schemaOf gives the recorded schema of a kind. The claims generation couldn't
// be recorded: it is the early one with what is known to differ.
func schemaOf(t testing.TB, kind string) string {
	t.Helper()
	file := map[string]string{KindV1: "v1-schema.sql", KindEarly: "v2-early-schema.sql", KindClaims: "v2-early-schema.sql"}[kind]
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if kind != KindClaims {
		return string(text)
	}
	return strings.NewReplacer(
		"`session`", "`session_v2`", `"session"."time_suspended"`, `"session_v2"."time_suspended"`,
		"session_time_suspended_idx", "session_v2_time_suspended_idx",
		"`time_suspended` integer,", "`time_suspended` integer, `resume_attempts` integer DEFAULT 0 NOT NULL,",
	).Replace(string(text))
}

// server is the server's side of a database: a connection as the server has it.
type server struct {
	t    testing.TB
	path string
	kind string
	db   *sql.DB
}

// newServer makes a database of a kind, as its server leaves it.
func newServer(t testing.TB, kind string) *server {
	t.Helper()
	return newServerAt(t, kind, filepath.Join(t.TempDir(), "opencode.db"))
}

func newServerAt(t testing.TB, kind, path string) *server {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, "rwc", 2000, "journal_mode(WAL)", "synchronous(NORMAL)", "busy_timeout(5000)"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	s := &server{t, path, kind, db}
	if kind != KindAbsent {
		s.exec("BEGIN;" + schemaOf(t, kind) + ";COMMIT")
	}
	return s
}

func (s *server) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

func (s *server) count(query string, args ...any) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query, args...).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *server) table() string {
	if s.kind == KindClaims {
		return "session_v2"
	}
	return "session"
}

// session adds one; more sets further columns, "time_suspended = 5, title = 'x'".
func (s *server) session(id, more string) {
	s.t.Helper()
	s.exec(`INSERT OR IGNORE INTO project (id, worktree, time_created, time_updated, sandboxes) VALUES ('p', '/', 0, 0, '[]')`)
	s.exec(fmt.Sprintf(`INSERT INTO %s (id, project_id, slug, directory, title, version, time_created, time_updated)
		VALUES (?, 'p', 's', '/home/user/proj', 'Title of ' || ?1, '2', 1, 2)`, s.table()), id)
	if more != "" {
		s.exec(fmt.Sprintf(`UPDATE %s SET %s WHERE id = ?`, s.table(), more), id)
	}
}

// event adds the next event of a session. created is in Unix milliseconds.
func (s *server) event(session, kind, data string, created int64) {
	s.t.Helper()
	s.exec(`INSERT INTO event_sequence (aggregate_id, seq) VALUES (?, 0) ON CONFLICT DO UPDATE SET seq = seq + 1`, session)
	s.exec(`INSERT INTO event (id, aggregate_id, seq, created, type, data)
		SELECT 'evt_' || aggregate_id || seq, aggregate_id, seq, ?2, ?3, ?4 FROM event_sequence WHERE aggregate_id = ?1`,
		session, created, kind, data)
}

// message adds the next message of a v2 session.
func (s *server) message(session, id, kind, data string, at int64) {
	s.t.Helper()
	s.exec(`INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)
		SELECT ?, ?, ?, count(*), ?, ?4, ? FROM session_message WHERE session_id = ?2`, id, session, kind, at, data)
}

// messageV1 adds a v1 message with its parts.
func (s *server) messageV1(session, id string, at int64, data string, parts ...string) {
	s.t.Helper()
	s.exec(`INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?3, ?)`, id, session, at, data)
	for i, part := range parts {
		s.exec(`INSERT INTO part (id, message_id, session_id, time_created, time_updated, data) VALUES (?, ?, ?, ?, ?4, ?)`,
			fmt.Sprintf("prt_%s_%03d", id, i), id, session, at, part)
	}
}

func (s *server) job(id, value string) {
	s.t.Helper()
	s.exec(`INSERT INTO kv (key, value, time_created, time_updated) VALUES ('job.background/' || ?, ?, 3, 4)`, id, value)
}

// open is our side.
func (s *server) open(gen Generation) *Database {
	s.t.Helper()
	d, err := OpenDatabase(s.path, gen)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := d.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return d
}

// TestLockHolder is no test but a second process, when holdLock starts it: it
// takes the write lock of a database, says so, and keeps it until its input ends.
func TestLockHolder(t *testing.T) {
	path := os.Getenv("INTERMISSION_TEST_HOLD")
	if path == "" {
		return
	}
	db, err := sql.Open("sqlite", dsn(path, "rw", 256, "busy_timeout(5000)"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
}

// holdLock has another process hold the write lock until release is called.
func holdLock(t testing.TB, path string) (release func()) {
	t.Helper()
	cmd, in := startHolder(t, path)
	released := false
	release = func() {
		if !released {
			released = true
			in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(release)
	return release
}

func startHolder(t testing.TB, path string) (cmd *exec.Cmd, in io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestLockHolder$")
	cmd.Env = append(os.Environ(), "INTERMISSION_TEST_HOLD="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the second process said %q, %v", line, err)
	}
	return cmd, stdin
}
