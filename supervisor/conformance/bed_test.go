//go:build linux

package conformance

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"testing"

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
	// elsewhere starts a server that is nobody's service, on the same data: a TUI has one inside.
	elsewhere(t testing.TB) (*process, api)
	// serverWords stand in the command line of every server of this bed, and of nothing else.
	serverWords() []string

	create(a api, directory string) (id string, err error)
	// prompt returns as soon as the server has accepted it. agent "" is the default one.
	prompt(a api, id, text, agent string) error
	active(a api, id, directory string) (bool, error)
	delete(a api, id string) error
	// goOn directs what a session does that goes on, in servers that are started from now on.
	// Otherwise it gives a short answer.
	goOn(directive string)

	// turns counts the requests for a session's own turns that reached the model.
	turns(t testing.TB, w work) int
	// asked tells whether all that a server asks of the model at a session's beginning has reached it.
	asked(t testing.TB, w work) bool
	// requests counts all that reached the model.
	requests(t testing.TB) int

	// planner is an agent that isn't the default one, "" where a session keeps its agent by itself.
	planner() string
	// toolName is what the bed calls the tool that runs a command.
	toolName() string
	// history gives a session's messages and their parts, row by row, as the database holds them.
	history(t testing.TB, id string) []string
	// agent gives the agent of a session's newest turn.
	agent(t testing.TB, id string) string
	// interruptions counts the turns of a session that its user has cut short, as the database holds them.
	interruptions(t testing.TB, id string) int
	// text gives what a session's model wrote, as the database holds it.
	text(t testing.TB, id string) string
}

// kinds are the beds by name. Each makes a sandbox of its own.
var kinds = []struct {
	name string
	make func(testing.TB, *sandbox) bed
}{
	{"v1", newV1},
	{"v2-early", newEarly},
	{"v2-claims", newClaims},
}

// work is a session that is at work.
type work struct {
	id, directory string
	agent         string // "" is the default one
	marker        string // stands in its prompt
	command       string // its tool's command, or ""
}

// begin makes a session and sets it to work, in a directory of its own.
func begin(t testing.TB, s *sandbox, b bed, a api, name, directive, agent, command string) work {
	t.Helper()
	w := work{directory: s.project(t, name), marker: "marker-" + name, agent: agent, command: command}
	id, err := b.create(a, w.directory)
	if err != nil {
		t.Fatalf("cannot make a session: %v", err)
	}
	w.id = id
	if err := b.prompt(a, id, "Please "+w.marker+" "+directive, agent); err != nil {
		t.Fatalf("cannot prompt: %v", err)
	}
	atWork(t, s, b, a, w)
	return w
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

// atWork waits until every sign of a session's work is there: it is active, what it
// asks of the model has reached it, and its tool runs or its text is being written.
func atWork(t testing.TB, s *sandbox, b bed, a api, w work) {
	t.Helper()
	eventually(t, "session "+w.marker+" at work", func() error {
		if ok, err := b.active(a, w.id, w.directory); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("active: %v", ok))
		}
		if !b.asked(t, w) {
			return errors.New("its request has not reached the model")
		}
		if w.command != "" && len(s.running(w.command)) == 0 {
			return fmt.Errorf("its tool %q doesn't run", w.command)
		}
		return nil
	})
}
