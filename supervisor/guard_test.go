package supervisor

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"intermission/platform"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// TestAFailedParkKeepsEverybodyOut: what can't be parked must not be resumed by a
// server that somebody else starts.
func TestAFailedParkKeepsEverybodyOut(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	b.exec("ALTER TABLE session_v2 RENAME TO elsewhere")
	signal(t, st.Server.PID, platform.Kill)
	st = b.phase(Blocked)
	if !strings.Contains(st.Server.Reason, "no server can start meanwhile") {
		t.Errorf("reason %q", st.Server.Reason)
	}
	if _, err := b.client.Pending(t.Context()); !st.Sessions.Unknown || err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("what waits is called known: %+v, %v", st.Sessions, err)
	}
	foreign, err := platform.Start(platform.Spec{Argv: b.o.Config.Server.Command, Env: append(b.o.Environ, asServer+"=1"), Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	if exit := foreign.Wait(); exit.Code != 0 {
		t.Errorf("a foreign server met no lock: %+v", exit)
	}
	// Nor does a handover let go of the lock.
	if _, err := b.client.HandOver(t.Context()); err == nil || !strings.Contains(err.Error(), "can't be parked") {
		t.Errorf("handed over: %v", err)
	}
	b.exec("ALTER TABLE elsewhere RENAME TO session_v2")
	b.phase(Running)
}

func (b *bed) databasePath() string { return filepath.Join(b.dir, ".local/share/opencode/opencode.db") }

// exec changes the server's database from outside.
func (b *bed) exec(statement string) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.databasePath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statement); err != nil {
		b.t.Fatal(err)
	}
}

// TestAStarterThatWinsTheLockFindsNothing: the kernel hands a lock to nobody, so
// another server can take it before the waiter does.
func TestAStarterThatWinsTheLockFindsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	claim(t, b.databasePath(), 1)
	// The foreign one has won: what it holds is what our waiter waits for. Replacing
	// the file makes that certain; the waiter still waits on the old one.
	lock := filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
	winner, err := platform.TryServerLock(lock + ".new")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(lock+".new", lock); err != nil {
		t.Fatal(err)
	}
	defer winner.Unlock() //nolint:errcheck // the test's own
	signal(t, st.Server.PID, platform.Kill)
	b.until("the claim is parked", func() bool {
		p, err := b.client.Pending(t.Context())
		return err == nil && len(p.Pending) == 1
	}, func() any { return nil })
	db, err := sql.Open("sqlite", "file:"+b.databasePath())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRow("SELECT count(*) FROM session_v2 WHERE time_suspended IS NOT NULL").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d claims are left for the winner, %v", left, err)
	}
}

// TestWhatItWaitedForIsKnownAfterACrash: permissions and questions are in the server's memory only.
func TestWhatItWaitedForIsKnownAfterACrash(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	b.prompt("may I [[permission]]")
	b.until("the ledger knows what it waits for", func() bool {
		db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var n int
		return db.QueryRow("SELECT count(*) FROM session WHERE waiting = 'permission'").Scan(&n) == nil && n == 1
	}, func() any { return nil })
	signal(t, st.Server.PID, platform.Kill)
	b.until("it is shown", func() bool {
		p, err := b.client.Pending(t.Context())
		return err == nil && len(p.Pending) == 1 && p.Pending[0].WaitingFor == "permission"
	}, func() any { return nil })
}

// TestOneReadingIsCountedAndListed: a crash with subagents at work. Whoever watches
// is never told of more than the three who wait, neither in the list nor in the count.
func TestOneReadingIsCountedAndListed(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	for range 3 {
		b.prompt("[[subagent kid [[slow n=4000 ms=500]]]]")
	}
	b.until("all are at work", func() bool {
		now, err := b.client.Status(t.Context())
		return err == nil && len(now.Sessions.Working) == 6
	}, func() any { return nil })
	settled := errors.New("settled")
	watched := make(chan error, 1)
	first := make(chan struct{})
	begin := sync.OnceFunc(func() { close(first) })
	go func() {
		watched <- b.client.Watch(t.Context(), func(snap control.Snapshot) error {
			begin()
			if n := snap.Status.Sessions.Pending; n != len(snap.Pending) || n > 3 {
				return fmt.Errorf("%d are counted, %d listed", n, len(snap.Pending))
			}
			for _, p := range snap.Pending {
				if len(p.Children) != 1 || p.Title == "" {
					return nil
				}
			}
			if len(snap.Pending) == 3 {
				return settled
			}
			return nil
		})
	}()
	<-first
	signal(t, st.Server.PID, platform.Kill)
	select {
	case err := <-watched:
		if !errors.Is(err, settled) {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("never were three shown, each with its subagent")
	}

	// As if the family were found out between the two looks.
	b.phase(Running)
	ledger, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close()
	if _, err := ledger.Exec("UPDATE session SET parent_id = '', described = 0"); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE session_v2 SET title = title")
	err = b.client.Watch(t.Context(), func(snap control.Snapshot) error {
		if n := snap.Status.Sessions.Pending; n != 3 || len(snap.Pending) != 3 {
			return fmt.Errorf("%d are counted, %d listed", n, len(snap.Pending))
		}
		return settled
	})
	if !errors.Is(err, settled) {
		t.Error(err)
	}
}

// prompt puts a new session to work, as a user's client does.
func (b *bed) prompt(text string) (session string) {
	b.t.Helper()
	var made struct{ Data struct{ ID string } }
	b.post("/api/session", map[string]any{"location": map[string]string{"directory": b.dir}}, &made)
	b.post("/api/session/"+made.Data.ID+"/prompt", map[string]string{"text": text}, &struct{}{})
	return made.Data.ID
}

// ask calls the server's API, as a user's client does; answer nil is that none is expected.
func (b *bed) ask(method, path string, body, answer any) {
	b.t.Helper()
	r, ok := loadRecord(b.o.Paths.ServerRecord)
	if !ok {
		b.t.Fatal("no record")
	}
	doc, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, r.URL+path, bytes.NewReader(doc))
	if err != nil {
		b.t.Fatal(err)
	}
	req.SetBasicAuth(opencode.Username, r.Password)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		b.t.Fatalf("%s: %s", path, resp.Status)
	}
	if answer == nil {
		return
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) post(path string, body, answer any) {
	b.t.Helper()
	b.ask(http.MethodPost, path, body, answer)
}

// TestNobodyStartsWhileTheLedgerCantBeOpened: what can't be parked must not be resumed by others.
func TestNobodyStartsWhileTheLedgerCantBeOpened(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	if err := os.MkdirAll(b.o.Paths.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.o.Paths.Ledger, []byte(strings.Repeat("not a ledger ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.phase(Blocked)
	b.until("the lock is held", func() bool {
		lock, err := platform.TryServerLock(filepath.Join(b.dir, ".local/state/opencode/service.json.lock"))
		if err == nil {
			_ = lock.Unlock()
		}
		return errors.Is(err, platform.ErrLocked)
	}, func() any { return nil })
	if err := os.Remove(b.o.Paths.Ledger); err != nil {
		t.Fatal(err)
	}
	b.phase(Running)
}

// TestARemovedLockFileLetsNobodyIn: a second server on the same data would run sessions twice.
func TestARemovedLockFileLetsNobodyIn(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	lock := filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
	for range 2 { // the file that we hold in its place can be removed as well
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		b.until("the name is locked again", func() bool { return b.locked(lock) }, func() any { return nil })
	}
	claim(t, b.databasePath(), 1)
	signal(t, st.Server.PID, platform.Kill)
	b.until("another incarnation", func() bool {
		now, err := b.client.Status(t.Context())
		return err == nil && now.Server.State == "running" && now.Server.Incarnation != st.Server.Incarnation && now.Sessions.Pending == 1
	}, func() any { now, _ := b.client.Status(t.Context()); return now })
}

// TestAShieldIsKeptWhenTheParkFails: what can't be parked keeps everybody out, by whatever lock.
func TestAShieldIsKeptWhenTheParkFails(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	lock := filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	b.until("the name is locked again", func() bool { return b.locked(lock) }, func() any { return nil })
	claim(t, b.databasePath(), 1)
	if err := os.Rename(b.o.Paths.Ledger, b.o.Paths.Ledger+".away"); err != nil {
		t.Fatal(err)
	}
	signal(t, st.Server.PID, platform.Kill)
	b.phase(Blocked)
	if !b.locked(lock) {
		t.Error("a foreign server could start")
	}
	if err := os.Rename(b.o.Paths.Ledger+".away", b.o.Paths.Ledger); err != nil {
		t.Fatal(err)
	}
	if st := b.phase(Running); st.Sessions.Pending != 1 {
		t.Errorf("%+v", st.Sessions)
	}
}

// TestALockThatIsRemovedDuringTheStartIsShielded: the server is not attended yet.
func TestALockThatIsRemovedDuringTheStartIsShielded(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_BOOT_DELAY": "500ms"})
	b.start()
	lock := filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
	b.until("it has registered", func() bool {
		_, err := os.Stat(filepath.Join(b.dir, ".local/state/opencode/service.json"))
		return err == nil
	}, func() any { return nil })
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	b.phase(Running)
	b.until("the name is locked again", func() bool { return b.locked(lock) }, func() any { return nil })
}

// locked says that the file is there, and locked by somebody.
func (b *bed) locked(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	held, err := platform.TryServerLock(path)
	if err == nil {
		_ = held.Unlock()
	}
	return errors.Is(err, platform.ErrLocked)
}

// TestAnUnregisteredServerIsEndedBeforeItIsParked: what it writes at its end must be parked too.
func TestAnUnregisteredServerIsEndedBeforeItIsParked(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_KIND": "early"})
	b.start()
	b.phase(Running)
	b.prompt("work [[slow n=600 ms=100]]")
	b.until("it works", func() bool {
		st, err := b.client.Status(t.Context())
		return err == nil && len(st.Sessions.Active) == 1
	}, func() any { return nil })
	// As if the supervisor had been killed, and its server's files removed by a clean-up.
	r, ok := loadRecord(b.o.Paths.ServerRecord)
	if !ok {
		t.Fatal("no record")
	}
	s := &supervisor{Options: b.o, life: t.Context()}
	if err := s.endRecorded(r); err != nil {
		t.Fatal(err)
	}
	if r.Identity.Alive() {
		t.Error("it lives")
	}
	b.until("it is suspended", func() bool {
		p, err := b.client.Pending(t.Context())
		return err == nil && len(p.Pending) == 1
	}, func() any { return nil })
}

// TestClaimsAreParkedWithoutTheProgram: an upgrade that is under way, or failed, leaves none.
func TestClaimsAreParkedWithoutTheProgram(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	program := filepath.Join(b.dir, "opencode")
	if err := os.Symlink(b.o.Config.Server.Command[0], program); err != nil {
		t.Fatal(err)
	}
	b.o.Config.Server.Command[0] = program
	b.start()
	b.phase(Running)
	b.stop()
	claim(t, b.databasePath(), 1)
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	b.start()
	if st := b.phase(Failed); st.Sessions.Pending != 1 || !strings.Contains(st.Server.Reason, program) {
		t.Errorf("%+v", st)
	}
}

func TestAnUnreadableWishStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	if err := os.MkdirAll(b.o.Paths.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wishFile(b.o.Paths.State), []byte("runn"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	if st := b.phase(Stopped); !strings.Contains(st.Server.Reason, "intermission start") {
		t.Errorf("%+v", st.Server)
	}
	if _, err := b.client.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAPortThatIsTakenIsNoLoop(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_FAULT": "port-taken"})
	b.start()
	if st := b.phase(Failed); st.Server.Restarts != 0 || !strings.Contains(st.Server.Reason, "already in use") {
		t.Errorf("%+v", st.Server)
	}
}

// TestALedgerThatMissedEventsCatchesUp: on v1 nothing else would know of these claims.
func TestALedgerThatMissedEventsCatchesUp(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	path := filepath.Join(b.dir, "log")
	log, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b.o.Log = slog.New(slog.NewTextHandler(log, nil))
	b.start()
	b.phase(Running)
	first := b.prompt("be heard [[slow n=600 ms=100]]")
	b.until("events are heard", func() bool {
		st, err := b.client.Status(t.Context())
		return err == nil && slices.Contains(st.Sessions.Active, first)
	}, func() any { return nil })
	if err := os.Rename(b.o.Paths.Ledger, b.o.Paths.Ledger+".away"); err != nil {
		t.Fatal(err)
	}
	b.prompt("work [[slow n=600 ms=100]]")
	b.until("its start was missed", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), "could not be written to the ledger")
	}, func() any { return nil })
	if err := os.Rename(b.o.Paths.Ledger+".away", b.o.Paths.Ledger); err != nil {
		t.Fatal(err)
	}
	b.until("the ledger has its claim", func() bool {
		db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?mode=ro")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var n int
		return db.QueryRow("SELECT count(*) FROM session WHERE time_claimed IS NOT NULL").Scan(&n) == nil && n == 2
	}, func() any { return nil })
}
