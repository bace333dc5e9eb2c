package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// This is the ledger and the resumer against a model of a few lines. The world
// (what executes, and where) is in the model too, so that it knows what each end of
// a server, each event and each click must leave. TestModel runs both, and compares
// after each act: what is shown with its exact times and states, how often each
// suspension was made and ended, and that there were no more deliveries than consents.

// modelSession is one session: first the world's, then what the ledger must hold of it.
type modelSession struct {
	busy, foreign bool    // it executes in our server, in another one
	killed        bool    // its last execution has no end
	mark          int     // executions ever
	row           int64   // the claim in the server's database; 0 is none
	started       int64   // when the last execution began
	outcome       Outcome // of the last execution that has ended

	claimed   bool // we know that it is at work
	claimedAt int64
	seen      int64 // newest event
	at, last  int64 // the suspension that waits (0 none), the newest ever
	cause     Cause
	announced bool // for an end of its server that hasn't come
	unknown   bool
	elsewhere bool
	marked    int // mark when it was suspended; -1 isn't known yet

	made, ended, consents, deliveries int
}

func (m *modelSession) suspend(cause Cause, at int64) {
	m.at = max(at, m.last+1)
	m.last, m.cause, m.marked = m.at, cause, -1
	m.announced, m.unknown, m.elsewhere, m.claimed = false, false, false, false
	m.made++
}

// claim says that it is at work since then, by what a server has told.
func (m *modelSession) claim(at int64) {
	m.settle()
	m.claimed, m.claimedAt, m.seen = true, at, max(m.seen, at)
}

func (m *modelSession) settle() {
	if m.at != 0 {
		m.ended++
	}
	m.at, m.announced, m.unknown, m.elsewhere = 0, false, false, false
}

// begins is an execution that its server began, and wrote down if it does so.
func (m *modelSession) begins(now int64, rows, foreign bool) {
	m.busy, m.foreign, m.killed, m.started = !foreign, foreign, false, now
	m.mark++
	if rows {
		m.row = now
	}
}

func (m *modelSession) ends(o Outcome) {
	m.busy, m.foreign, m.killed, m.row, m.outcome = false, false, false, 0, o
}

func (m *modelSession) fate(rows bool) Fate {
	f := Fate{m.outcome, fmt.Sprintf("m%d", m.mark)}
	if m.busy || m.foreign || m.killed {
		f.Outcome = OutcomeUnknown // v1 doesn't tell
		if rows {
			f.Outcome = OutcomeInFlight
		}
	}
	return f
}

var modelNames = []string{"ses_a", "ses_b", "ses_c"} // ses_c works for ses_b

// modelRun is the model, the world, and the real ledger and resumer beside them.
type modelRun struct {
	*rapid.T
	*modelDatabase
	path     string
	clock    int64
	ledger   *Ledger
	resumer  *Resumer
	server   *fakeServer
	sent     []Event
	open     bool // an incarnation runs
	begun    int64
	n        int  // incarnations
	stopping bool // a stop was announced
}

// modelDatabase is the server's database, as the world has it.
type modelDatabase struct {
	*fakeDatabase
	all  map[string]*modelSession
	rows bool // it keeps claims (v2)
}

// refresh writes the world to the database.
func (d *modelDatabase) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.claims)
	for id, m := range d.all {
		d.fates[id] = m.fate(d.rows)
		if m.row != 0 {
			c := claim(id, m.row)
			c.Parent = modelParent(id)
			d.claims[id] = c
		}
		d.about[id] = Description{Title: id, Directory: "/", Parent: modelParent(id)}
	}
}

func (d *modelDatabase) InFlight(_ context.Context, since int64) ([]string, error) {
	var list []string
	for _, id := range modelNames {
		if m := d.all[id]; d.rows && (m.busy || m.foreign || m.killed) && m.started >= since {
			list = append(list, id)
		}
	}
	return list, nil
}

func modelParent(id string) string {
	if id == "ses_c" {
		return "ses_b"
	}
	return ""
}

func (r *modelRun) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// up opens the ledger, as the supervisor that comes.
func (r *modelRun) up() {
	r.Helper()
	l, err := Open(r.path, func() time.Time { return time.UnixMilli(r.clock) })
	r.must(err)
	_, err = l.db.Exec("PRAGMA synchronous = OFF") // no power failure here
	r.must(err)
	r.ledger = l
	r.resumer = NewResumer(l, ResumerConfig{Exists: func(string) bool { return true }})
	if r.open {
		r.attend(ArrivalUnknown, errors.New("can't be asked"))
	}
}

func (r *modelRun) down() {
	r.resumer.Close()
	r.must(r.ledger.Close())
}

// attend is what a supervisor does with a server that is up.
func (r *modelRun) attend(arrival Arrival, err error) {
	r.Helper()
	r.refresh()
	r.must(r.ledger.Recover(r.Context(), func(context.Context, Delivery) (Arrival, error) { return arrival, err }, r))
	r.resync()
	r.resumer.SetServer(r.server, r)
}

func (r *modelRun) active() []string {
	var list []string
	for _, id := range modelNames {
		if r.all[id].busy {
			list = append(list, id)
		}
	}
	r.server.setActive(list...)
	return list
}

// resync finds out what was missed, by the server and by its database.
func (r *modelRun) resync() {
	r.Helper()
	r.refresh()
	r.must(r.ledger.Resync(r.Context(), r.active(), r.clock))
	for id, m := range r.all {
		switch {
		case m.busy && !m.claimed && !m.announced:
			m.claim(max(r.clock, m.seen+1, m.last+1))
			r.parented(id)
		case !m.busy && m.claimed:
			m.claimed = false
		}
	}
	r.reconcile()
}

func (r *modelRun) reconcile() {
	r.Helper()
	r.refresh()
	r.must(r.ledger.Reconcile(r.Context(), r))
	for _, m := range r.all {
		if m.at == 0 || m.announced {
			continue
		}
		moved := m.marked >= 0 && m.marked != m.mark
		m.elsewhere = moved && m.fate(r.rows).Outcome == OutcomeInFlight
		if moved && !m.elsewhere {
			m.settle()
		}
	}
}

func (r *modelRun) parented(id string) {
	if p := modelParent(id); p != "" {
		r.must(r.ledger.SetParents(r.Context(), map[string]string{id: p}))
	}
}

// event is what the server tells now. It gives the time that counts.
func (r *modelRun) event(kind EventKind, id string) int64 {
	r.Helper()
	m, e := r.all[id], Event{Kind: kind, Session: id, At: r.clock}
	at, claimed := e.At, int64(0)
	if row, err := find(r.ledger.db, id); err == nil && row != nil {
		claimed = row.Claimed // which the model doesn't keep of what is parked
	}
	if at < max(r.begun, m.seen, m.last, claimed) { // the clock was set back
		at = max(at, m.seen+1, m.last+1, claimed)
	}
	r.must(r.ledger.Apply(r.Context(), e))
	r.resumer.Observe(e)
	r.sent = append(r.sent, e)
	m.seen = at
	return at
}

// begin starts the next incarnation.
func (r *modelRun) begin() {
	r.Helper()
	r.n++
	r.clock += 10
	r.open, r.begun, r.stopping, r.server = true, r.clock, false, &fakeServer{}
	r.must(r.ledger.BeginIncarnation(r.Context(), Incarnation{ID: fmt.Sprintf("inc%d", r.n), Generation: "v2", Database: serverDB, StartedAt: r.clock}))
	r.attend(ArrivalUnknown, nil)
}

// park has everything parked after the end of the server; cut says where the
// supervisor dies once on the way.
func (r *modelRun) park(cause Cause, cut string) {
	r.Helper()
	for _, m := range r.all {
		if m.busy || m.foreign {
			m.killed = true
		}
		m.busy, m.foreign = false, false
	}
	r.resumer.SetServer(nil, nil)
	r.refresh()
	at := r.clock
	o := ParkOptions{Cause: cause, At: at, Database: serverDB, Generation: "v2"}
	if cut != "" {
		func() {
			defer func() { _ = recover() }()
			defer func() { r.onClear = nil; delete(r.fail, "Clear") }()
			die := func() { panic("the supervisor dies") }
			switch cut {
			case "taken in":
				r.onClear = die
			case "cleared":
				o.Cleared = die
			default:
				r.fail["Clear"] = errors.New("locked")
			}
			_, _ = r.ledger.Park(r.Context(), r, o)
		}()
		o.Cleared = nil
		open := r.open
		r.open = false // nothing to attend
		r.down()
		r.up()
		r.open = open
	}
	for range 2 { // the second time finds nothing
		p, err := r.ledger.Park(r.Context(), r, o)
		r.must(errors.Join(append(p.Warnings, err)...))
	}
	for _, id := range modelNames {
		m := r.all[id]
		ours := r.open && m.row >= r.begun // it may have been another's
		switch {
		case m.row != 0 && m.announced, m.announced && !m.fate(r.rows).over():
			m.announced = false
		case m.row != 0 && (m.claimed || ours), m.claimed && !m.fate(r.rows).over():
			m.settle()
			m.suspend(cause, at)
		case m.row != 0:
			m.settle()
			m.suspend(CauseParked, m.row)
		case m.announced:
			m.settle()
		}
		m.claimed, m.row = false, 0
	}
	for _, m := range r.all {
		if m.at != 0 && m.marked < 0 {
			m.marked = m.mark
		}
	}
	r.open, r.stopping = false, false
}

// head is the session under which this one waits.
func (r *modelRun) head(id string) string {
	if p := modelParent(id); p != "" && r.all[id].at != 0 && r.all[p].at != 0 {
		return p
	}
	return id
}

// under gives what a decision about the head is about.
func (r *modelRun) under(id string) []*modelSession {
	var list []*modelSession
	for _, name := range modelNames {
		if m := r.all[name]; m.at != 0 && r.head(name) == id {
			list = append(list, m)
		}
	}
	return list
}

// decidable says that a decision about the suspension counts.
func (r *modelRun) decidable(id string, at int64) bool {
	return r.all[id].at != 0 && at == r.all[id].at && r.head(id) == id &&
		!slices.ContainsFunc(r.under(id), func(m *modelSession) bool { return m.announced })
}

// compare holds the ledger against the model.
func (r *modelRun) compare(*rapid.T) {
	r.Helper()
	list, err := r.ledger.Pending(r.Context())
	r.must(err)
	got, want := map[string]string{}, map[string]string{}
	for _, s := range list {
		got[s.ID] = fmt.Sprintf("%d %s %s %v", s.SuspendedAt, s.Cause, s.State, s.Children)
	}
	for _, id := range modelNames {
		m := r.all[id]
		if m.at == 0 || r.head(id) != id {
			continue
		}
		state, children := StatePending, []string{}
		switch {
		case m.unknown:
			state = StateUnknown
		case m.announced:
			state = StateBlocked
		case m.elsewhere:
			state = StateElsewhere
		}
		if c := "ses_c"; c != id && r.all[c].at != 0 && r.head(c) == id {
			children = append(children, c)
		}
		want[id] = fmt.Sprintf("%d %s %s %v", m.at, m.cause, state, children)
	}
	if !maps.Equal(got, want) {
		for _, id := range modelNames {
			_, _, journal, _ := r.ledger.Show(r.Context(), id)
			r.Logf("%s is %+v; its journal is %v", id, *r.all[id], journal)
		}
		r.Fatalf("shown is\n%v\nwant\n%v", got, want)
	}
	var claims []string
	for _, id := range modelNames {
		m := r.all[id]
		if m.claimed {
			claims = append(claims, id)
		}
		row, err := find(r.ledger.db, id)
		r.must(err)
		if row == nil {
			continue
		}
		waits := 0
		if m.at != 0 {
			waits = 1
		}
		if row.Consent != int64(m.consents) || m.deliveries > m.consents || m.made != m.ended+waits {
			r.Fatalf("%s: %d consents in the ledger: %+v", id, row.Consent, m)
		}
		var made, ended int
		r.must(r.ledger.db.QueryRow(`SELECT count(*) FILTER (WHERE what = 'suspended'),
			count(*) FILTER (WHERE what IN ('delivered', 'dismissed', 'settled')) FROM journal WHERE session = ?`, id).Scan(&made, &ended))
		if made != m.made || ended != m.ended {
			_, _, journal, _ := r.ledger.Show(r.Context(), id)
			r.Fatalf("%s was suspended %d times and ended %d times, want %+v; its journal is %v", id, made, ended, m, journal)
		}
	}
	live, err := r.ledger.Claims(r.Context())
	r.must(err)
	if !slices.Equal(live, claims) {
		r.Fatalf("claims are %v, want %v", live, claims)
	}
}

// TestModel runs random acts of people, servers, clocks and crashes.
func TestModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		path := filepath.Join(dir, fmt.Sprintf("ledger%d.db", n))
		rapid.SyncTest(t, func(t *rapid.T) { // deliveries wait for events, in a time of their own
			r := &modelRun{T: t, path: path, clock: 100 * hour, server: &fakeServer{},
				modelDatabase: &modelDatabase{fakeDatabase: newDatabase(), all: map[string]*modelSession{}, rows: rapid.Bool().Draw(t, "v2")}}
			for _, id := range modelNames {
				r.all[id] = &modelSession{outcome: OutcomeEnded}
			}
			r.up()
			defer func() { r.down() }()
			r.begin()
			acts := r.acts()
			acts[""] = r.compare
			t.Repeat(acts)
		})
	})
}
