package devserver

import (
	"database/sql"
	"strings"
	"testing"
	"time"
)

// open opens the user's database as somebody from outside does.
func (u *user) open() *sql.DB {
	u.t.Helper()
	db, err := sql.Open("sqlite", "file:"+u.settings().database+"?_pragma=busy_timeout(5000)")
	if err != nil {
		u.t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	u.t.Cleanup(func() { _ = db.Close() })
	return db
}

// get reads one value; {session} in the query is the session table. NULL is "".
func (u *user) get(query string, args ...any) string {
	u.t.Helper()
	db := u.open()
	defer db.Close()
	var value sql.NullString
	if err := db.QueryRow(u.sql(query), args...).Scan(&value); err != nil {
		u.t.Fatalf("%s: %v", query, err)
	}
	return value.String
}

func (u *user) exec(statement string, args ...any) {
	u.t.Helper()
	db := u.open()
	defer db.Close()
	if _, err := db.Exec(u.sql(statement), args...); err != nil {
		u.t.Fatalf("%s: %v", statement, err)
	}
}

func (u *user) sql(statement string) string {
	table := map[kind]string{early: "session", claims: "session_v2"}[u.kind]
	return strings.ReplaceAll(statement, "{session}", table)
}

func (u *user) suspended(session string) bool {
	u.t.Helper()
	return u.get(`SELECT time_suspended FROM {session} WHERE id = ?`, session) != ""
}

// lastEvent is the newest execution event of a session, with its reason.
func (u *user) lastEvent(session string) string {
	u.t.Helper()
	return u.get(`SELECT substr(type, 19) || coalesce(' ' || json_extract(data, '$.reason'), '') FROM event
		WHERE aggregate_id = ? AND type LIKE 'session.execution.%' ORDER BY seq DESC LIMIT 1`, session)
}

// TestFrozenByOutsideLock: while somebody holds the write lock, not even health is answered.
func TestFrozenByOutsideLock(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.session()
	db := u.open()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`INSERT INTO kv (key, value, time_created, time_updated) VALUES ('lock', '', 0, 0)`); err != nil {
		t.Fatal(err)
	}
	status := make(chan int, 1)
	go func() {
		got, _, _ := p.try("POST", "/api/session/"+id+"/prompt", data{"text": "hello"})
		status <- got
	}()
	var slowest time.Duration
	for len(status) == 0 {
		began := time.Now()
		p.want(200, "GET", "/api/health", nil, nil)
		slowest = max(slowest, time.Since(began))
	}
	if got := <-status; got != 500 { // after its busy_timeout of 5 s
		t.Errorf("a request past the busy timeout is answered %d, want 500", got)
	}
	if slowest < time.Second {
		t.Errorf("health was answered within %v all the while", slowest)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	p.want(200, "POST", "/api/session/"+id+"/prompt", data{"text": "hello"}, nil)
	p.settle(id)
}

// TestClaimLifecycle: set when a turn starts, cleared by each terminal event, seen by an outside UPDATE.
func TestClaimLifecycle(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	busy := p.begin("[[slow n=1000 ms=20]]")
	if !u.suspended(busy) {
		t.Error("no claim while a turn is in flight")
	}
	p.want(200, "POST", "/api/session/"+busy+"/interrupt", nil, nil)
	for name, id := range map[string]string{"interrupted": busy, "succeeded": p.begin("hello"), "failed": p.begin("[[fail]]")} {
		p.settle(id)
		if got := u.lastEvent(id); !strings.HasPrefix(got, name) {
			t.Errorf("%s: the last event is %q", name, got)
		}
		if u.suspended(id) {
			t.Errorf("%s: the claim is still there", name)
		}
	}
	u.exec(`UPDATE {session} SET title = 'renamed outside' WHERE id = ?`, busy)
	var answer struct{ Data sessionInfo }
	p.want(200, "GET", "/api/session/"+busy, nil, &answer)
	if answer.Data.Title != "renamed outside" {
		t.Errorf("title %q: a row is cached", answer.Data.Title)
	}
}

// TestUpgrade: a claims server takes over what an early one left.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	u := newUser(t, early)
	p := u.start()
	id := p.begin("[[slow n=1000 ms=20]]")
	p.stop()
	if !u.suspended(id) {
		t.Fatal("not suspended")
	}
	u.kind, u.env = claims, append(u.env, "INTERMISSION_DEVSERVER_KIND=claims")
	before := u.requestsOf(id)
	u.start()
	u.eventually("it is resumed by the newer server", func() bool { return u.requestsOf(id) > before })
}
