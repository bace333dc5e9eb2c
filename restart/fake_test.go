package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakeDatabase is the server's database as far as restart sees it.
type fakeDatabase struct {
	mu       sync.Mutex
	claims   map[string]Claim
	jobs     map[string]Job
	inFlight []string
	fates    map[string]Fate // others are OutcomeSuspended with mark "m"
	about    map[string]Description
	fail     map[string]error // by method
	onClear  func()           // runs before Clear looks at the rows
	cleared  int              // rows that were cleared
}

func newDatabase(claims ...Claim) *fakeDatabase {
	db := &fakeDatabase{claims: map[string]Claim{}, jobs: map[string]Job{}, fates: map[string]Fate{}, about: map[string]Description{}, fail: map[string]error{}}
	for _, c := range claims {
		db.claims[c.Session] = c
	}
	return db
}

func claim(session string, at int64) Claim {
	return Claim{Session: session, ClaimedAt: at, Raw: []byte(fmt.Sprintf(`{"time_suspended":%d}`, at))}
}

func (db *fakeDatabase) Sweep(context.Context) (Sweep, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	var s Sweep
	for _, id := range slices.Sorted(maps.Keys(db.claims)) {
		s.Claims = append(s.Claims, db.claims[id])
	}
	for _, key := range slices.Sorted(maps.Keys(db.jobs)) {
		s.Jobs = append(s.Jobs, db.jobs[key])
	}
	return s, db.fail["Sweep"]
}

func (db *fakeDatabase) Clear(_ context.Context, s Sweep) error {
	if db.onClear != nil {
		db.onClear()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.fail["Clear"]; err != nil {
		return err
	}
	for _, c := range s.Claims {
		if db.claims[c.Session].ClaimedAt != c.ClaimedAt {
			return ErrChanged
		}
	}
	for _, j := range s.Jobs {
		if string(db.jobs[j.Key].Raw) != string(j.Raw) {
			return ErrChanged
		}
	}
	for _, c := range s.Claims {
		delete(db.claims, c.Session)
	}
	for _, j := range s.Jobs {
		delete(db.jobs, j.Key)
	}
	db.cleared += len(s.Claims) + len(s.Jobs)
	return nil
}

func (db *fakeDatabase) InFlight(context.Context, int64) ([]string, error) {
	return db.inFlight, db.fail["InFlight"]
}

func (db *fakeDatabase) Fates(_ context.Context, list []string) (map[string]Fate, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	fates := map[string]Fate{}
	for _, id := range list {
		f, ok := db.fates[id]
		if !ok {
			f = Fate{OutcomeSuspended, "m"}
		}
		fates[id] = f
	}
	return fates, db.fail["Fates"]
}

func (db *fakeDatabase) fate(id string, o Outcome, mark string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.fates[id] = Fate{o, mark}
}

func (db *fakeDatabase) Describe(_ context.Context, list []string) (map[string]Description, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	found := map[string]Description{}
	for _, id := range list {
		d, ok := db.about[id]
		if !ok {
			d = Description{Title: "Title of " + id, Directory: "/"}
		}
		found[id] = d
	}
	return found, db.fail["Describe"]
}

// fakeServer is a live server.
type fakeServer struct {
	mu         sync.Mutex
	active     []string
	fail       error // of Active
	frozen     <-chan struct{}
	deliveries []Delivery
	deliver    func(context.Context, Delivery) error // nil accepts
	lookup     func(Delivery) (Arrival, error)
}

func (s *fakeServer) Active(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	frozen := s.frozen
	s.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.active), s.fail
}

// freeze makes it answer nothing before thaw is closed.
func (s *fakeServer) freeze(thaw <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = thaw
}

func (s *fakeServer) setActive(list ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = list
}

func (s *fakeServer) Deliver(ctx context.Context, d Delivery) error {
	s.mu.Lock()
	s.deliveries = append(s.deliveries, d)
	f := s.deliver
	s.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, d)
}

func (s *fakeServer) delivered() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deliveries)
}

func (s *fakeServer) Lookup(_ context.Context, d Delivery) (Arrival, error) {
	if s.lookup == nil {
		return ArrivalUnknown, errors.New("no connection")
	}
	return s.lookup(d)
}

func (s *fakeServer) Waiting(context.Context, string, string) (string, error) { return "", nil }

const (
	serverDB = "/data/opencode.db"
	begun    = 1000 // the incarnation's start in most tests
)

// bundle is a ledger with its clock and the database of its server.
type bundle struct {
	*Ledger
	t     testing.TB
	path  string
	clock int64 // Unix ms
	db    *fakeDatabase
}

// setup opens a new ledger and begins incarnation "inc1" at 1000; its clock stands at 5000.
func setup(t testing.TB, claims ...Claim) *bundle {
	t.Helper()
	b := bare(t, claims...)
	b.begin("inc1", begun)
	return b
}

// bare opens a new ledger; no incarnation was ever watched.
func bare(t testing.TB, claims ...Claim) *bundle {
	t.Helper()
	b := &bundle{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: 5000, db: newDatabase(claims...)}
	b.open()
	t.Cleanup(func() {
		conserved(t, b.Ledger)
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bundle) open() {
	b.t.Helper()
	l, err := Open(b.path, func() time.Time { return time.UnixMilli(b.clock) })
	if err != nil {
		b.t.Fatal(err)
	}
	b.Ledger = l
}

// reopen is the supervisor's death and its successor.
func (b *bundle) reopen() {
	b.t.Helper()
	if err := b.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open()
}

func (b *bundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) begin(id string, at int64) {
	b.t.Helper()
	b.must(b.BeginIncarnation(b.t.Context(), Incarnation{ID: id, Generation: "v2", Database: serverDB, StartedAt: at}))
}

// witness has a session ended that stays in the server's database.
func (b *bundle) witness() {
	b.t.Helper()
	b.apply(EventStarted, "ses_witness", 1500)
	b.apply(EventSucceeded, "ses_witness", 1600)
}

func (b *bundle) apply(kind EventKind, session string, at int64) {
	b.t.Helper()
	b.must(b.Apply(b.t.Context(), Event{Kind: kind, Session: session, At: at}))
}

// park parks, as after a crash at 5000.
func (b *bundle) park() Parked {
	b.t.Helper()
	p, err := b.Park(b.t.Context(), b.db, ParkOptions{Cause: CauseCrash, At: 5000, Database: serverDB, Generation: "v2"})
	b.must(err)
	for _, w := range p.Warnings {
		b.t.Error("warning:", w)
	}
	return p
}

func (b *bundle) pending() []Suspension {
	b.t.Helper()
	list, err := b.Pending(b.t.Context())
	b.must(err)
	return list
}

// wants compares the heads that are shown with "id state" words.
func (b *bundle) wants(want ...string) []Suspension {
	b.t.Helper()
	list := b.pending()
	var got []string
	for _, s := range list {
		got = append(got, s.ID+" "+string(s.State))
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("pending is %q, want %q", got, want)
	}
	return list
}

// claimed compares the live claims.
func (b *bundle) claimed(want ...string) {
	b.t.Helper()
	got, err := b.Claims(b.t.Context())
	b.must(err)
	if !slices.Equal(got, want) {
		b.t.Fatalf("claims are %q, want %q", got, want)
	}
}

// words gives the journal of a session without what was only shown or parked.
func (b *bundle) words(id string) []string {
	b.t.Helper()
	_, _, journal, err := b.Show(b.t.Context(), id)
	b.must(err)
	var words []string
	for _, e := range journal {
		if e.What != whatShown && e.What != whatParked {
			words = append(words, e.What)
		}
	}
	return words
}

func (b *bundle) journaled(id string, want ...string) {
	b.t.Helper()
	if got := b.words(id); !slices.Equal(got, want) {
		b.t.Fatalf("journal of %s is %q, want %q", id, got, want)
	}
}

// conserved checks that of each session: suspended = resumed + dismissed + settled + waiting.
func conserved(t testing.TB, l *Ledger) {
	t.Helper()
	rows, err := l.db.Query(`SELECT s.id, (SELECT count(*) FROM journal WHERE session = s.id AND what = 'suspended'),
			(SELECT count(*) FROM journal WHERE session = s.id AND what IN ('delivered', 'dismissed', 'settled')),
			(time_suspended IS NOT NULL) + (phase IN ('queued', 'resuming', 'covered')) FROM session s`)
	if err != nil {
		t.Error(err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var suspended, ended, waiting int
		if err := rows.Scan(&id, &suspended, &ended, &waiting); err != nil {
			t.Error(err)
		}
		if suspended != ended+waiting || waiting > 1 {
			t.Errorf("%s: suspended %d times, ended %d, waiting %d", id, suspended, ended, waiting)
		}
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
}
