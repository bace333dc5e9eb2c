//go:build linux

package conformance

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the servers' databases, read-only
)

// bed is a kind of server to run the flows against, in one sandbox.
type bed interface {
	// command is what config.toml names as server.command.
	command() []string
	// directives in the language of the bed's model.
	slow(words, ms int) string
	tool(command string) string

	// connect finds the managed server, as a client of the user's own would.
	connect() (api, error)
	// alone starts a server without intermission, in service mode where there is one.
	alone(t testing.TB) (*process, api)

	create(a api, directory string) (id string, err error)
	// prompt returns as soon as the server has accepted it. agent "" is the default one.
	prompt(a api, id, text, agent string) error
	active(a api, id, directory string) (bool, error)

	// turns counts the requests for a session's own turns that reached the model.
	turns(t testing.TB, id, marker string) int
	// requests counts all that reached the model.
	requests(t testing.TB) int

	// history gives a session's messages and their parts, row by row, as the database holds them.
	history(t testing.TB, id string) []string
	// agent gives the agent of a session's newest turn.
	agent(t testing.TB, id string) string
	// savedText tells whether a turn that was cut short keeps what was streamed, after a graceful stop.
	savedText(t testing.TB, id string) string
}

// kinds are the beds by name. Each makes a sandbox of its own.
var kinds = []struct {
	name string
	make func(testing.TB, *sandbox) bed
}{
	{"v1", newV1},
}

// work is a session that is at work.
type work struct {
	id, directory, agent string
	marker               string // stands in its prompt
	command              string // its tool's command, or ""
}

// readonly opens a server's database beside the running server.
func readonly(t testing.TB, name string) *sql.DB {
	t.Helper()
	dsn := (&url.URL{Scheme: "file", Path: name, RawQuery: "mode=ro&_pragma=busy_timeout(5000)"}).String()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatalf("cannot open %s: %v", name, err)
	}
	return db
}

// rows runs a query of one text column.
func rows(t testing.TB, database, query string, args ...any) []string {
	t.Helper()
	db := readonly(t, database)
	defer db.Close()
	found, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("cannot query %s: %v", database, err)
	}
	defer found.Close()
	var all []string
	for found.Next() {
		var row string
		if err := found.Scan(&row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// oneRow runs a query of one text column and wants exactly one row.
func oneRow(t testing.TB, database, query string, args ...any) string {
	t.Helper()
	all := rows(t, database, query, args...)
	if len(all) != 1 {
		t.Fatalf("%q has %d rows, not one", query, len(all))
	}
	return all[0]
}

// atWork waits until both of a session's signs of work are there: it is active, and
// its request has reached the model or its tool runs.
func atWork(t testing.TB, s *sandbox, b bed, a api, w work) {
	t.Helper()
	eventually(t, 40*time.Second, "session "+w.marker+" at work", func() error {
		if ok, err := b.active(a, w.id, w.directory); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("active: %v", ok))
		}
		if n := b.turns(t, w.id, w.marker); n == 0 {
			return fmt.Errorf("no request of it has reached the model")
		}
		if w.command != "" && len(s.running(w.command)) == 0 {
			return fmt.Errorf("its tool %q doesn't run", w.command)
		}
		return nil
	})
}
