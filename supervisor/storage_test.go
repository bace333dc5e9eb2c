package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// The faults of storage, and which test holds each:
//
//	the ledger is cut, emptied, an older copy, its -wal or -shm file missing,
//	  no file, garbage                restart: TestALedgerThatWasCutIsWholeOrNotOpened, TestWhatIsNotTheLedgerThatWasWrittenLast, TestALedgerThatIsNoFile
//	the ledger is newer, foreign      restart: TestFilesThatAreNoLedgerOfOursStayAsTheyAre
//	… taken away, cut, damaged in use restart: TestALedgerThatWasTakenAwayWhileInUseFailsClosed, TestADamagedLedgerIsSaidWithItsPathAndAnAct
//	the ledger's disk full, read-only restart: TestADiskThatIsFullOrReadOnlyIsNotADamagedLedger
//	any disk full while we work       TestASmallDisk
//	the ledger can't be opened        TestNobodyStartsWhileTheLedgerCantBeOpened, TestAShieldIsKeptWhenTheParkFails
//	the server's database is locked   opencode: TestClearWaitsForTheLock; TestALockedDatabase
//	… damaged                         TestADamagedDatabase
//	… of a shape that we don't know   opencode: TestUnknownShapesFailClosed; TestAFailedParkKeepsEverybodyOut, TestADatabaseOfAnotherShape

// lockedDatabase names the database that this binary is to lock, as another process does.
const lockedDatabase = "INTERMISSION_TEST_LOCK"

// holdDatabase keeps the write lock of a database until its standard input ends.
func holdDatabase(path string) int {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.Exec("BEGIN EXCLUSIVE")
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return 0
}

// lockDatabase has another process hold the lock until the function is called.
func (b *bed) lockDatabase() (release func()) {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), lockedDatabase+"="+b.databasePath())
	in, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		b.t.Fatalf("the other process said %q, %v", line, err)
	}
	done := false
	release = func() {
		if !done {
			done = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	b.t.Cleanup(release)
	return release
}

// requests counts the requests to the model.
func (b *bed) requests() int {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "requests"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

// quiet makes sure that nothing was executed that nobody has consented to.
func (b *bed) quiet(before int) {
	b.t.Helper()
	if now := b.requests(); now != before {
		b.t.Errorf("%d requests have reached the model", now-before)
	}
	if st, err := b.client.Status(b.t.Context()); err != nil || len(st.Sessions.Active) != 0 {
		b.t.Errorf("at work: %v, %v", st.Sessions.Active, err)
	}
}

// nobodyStarts has somebody else start the service: it must find the lock held.
func (b *bed) nobodyStarts() {
	b.t.Helper()
	foreign, err := platform.Start(platform.Spec{Argv: b.o.Config.Server.Command, Env: append(b.o.Environ, asServer+"=1"), Dir: b.dir})
	if err != nil {
		b.t.Fatal(err)
	}
	if exit := foreign.Wait(); exit.Code != 0 {
		b.t.Errorf("a foreign server met no lock: %+v", exit)
	}
}

func (b *bed) serverLock() string {
	return filepath.Join(b.dir, ".local/state/opencode/service.json.lock")
}

// said waits for a reason with all the words.
func (b *bed) said(words ...string) control.Status {
	b.t.Helper()
	return b.status(fmt.Sprintf("said %q", words), func(st control.Status) bool {
		for _, w := range words {
			if !strings.Contains(st.Server.Reason, w) {
				return false
			}
		}
		return true
	})
}

// lockedFor is for how long the database is locked at least; longer than a park may take.
func lockedFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("INTERMISSION_TEST_LOCKED_FOR")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestALockedDatabase by another process, until a park has given up, or for longer
// (INTERMISSION_TEST_LOCKED_FOR=60s): it is waited for in bounds, said, nobody can start
// a server meanwhile, and all goes on by itself.
func TestALockedDatabase(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bed, st control.Status){
		"killed": func(b *bed, st control.Status) {
			id, err := platform.Identify(st.Server.PID)
			if err == nil {
				err = id.Signal(platform.Kill)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		},
		"stopped": func(b *bed, _ control.Status) {
			go b.client.StopServer(context.WithoutCancel(b.t.Context())) //nolint:errcheck // it may fail: the status tells
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.start()
			st := b.phase(Running)
			id := b.prompt("[[shell sleep 300]]")
			b.atWork(id)
			requests := b.requests()
			locked := time.Now()
			release := b.lockDatabase()
			end(b, st)
			if id, err := platform.Identify(st.Server.PID); err == nil {
				gone, err := platform.Watch(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				<-gone
			}
			b.until("the lock is ours", func() bool { return b.locked(b.serverLock()) }, func() any { return nil })
			b.nobodyStarts()
			b.phase(Blocked)
			b.said("locked by another process", "opencode.db", "fuser ", "no server can start meanwhile")
			b.nobodyStarts()
			if rest := lockedFor(t) - time.Since(locked); rest > 0 {
				select {
				case <-time.After(rest):
				case <-t.Context().Done():
				}
				b.nobodyStarts()
				b.phase(Blocked)
			}
			release()
			b.waits(id)
			if name == "stopped" {
				b.phase(Stopped)
			} else {
				b.phase(Running)
			}
			b.quiet(requests)
		})
	}
}

// TestALockedDatabaseWhileThereIsAConsent: the server itself freezes.
func TestALockedDatabaseWhileThereIsAConsent(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	signal(t, st.Server.PID, platform.Kill)
	b.status("another incarnation", func(now control.Status) bool {
		return now.Server.State == string(Running) && now.Server.Incarnation != st.Server.Incarnation
	})
	b.waits(id)
	requests := b.requests()
	release := b.lockDatabase()
	asked, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	first, err := b.client.Resume(asked, id, 0)
	t.Logf("while it is locked: %+v, %v", first, err)
	if err == nil && first.Outcome == string(restart.VerdictResumed) {
		t.Errorf("%+v", first)
	}
	if _, err := b.client.Pending(t.Context()); err != nil { // what we know is shown
		t.Error(err)
	}
	release()
	// Either that consent counted, or it was refused, or it isn't known: never more than one execution.
	b.until("decided", func() bool {
		now, err := b.client.Pending(t.Context())
		return err == nil && (len(now.Pending) == 0 || now.Pending[0].State == restart.StatePending || now.Pending[0].State == restart.StateUnknown)
	}, func() any { now, _ := b.client.Pending(t.Context()); return now })
	if now, err := b.client.Pending(t.Context()); err == nil && len(now.Pending) == 1 && now.Pending[0].State == restart.StatePending {
		if again, err := b.client.Resume(t.Context(), id, 0); err != nil || again.Outcome != string(restart.VerdictResumed) {
			t.Errorf("with the lock gone: %+v, %v", again, err)
		}
	}
	b.atWork(id)
	if n := b.requests() - requests; n != 1 {
		t.Errorf("%d executions", n)
	}
}

// pages tells the root pages of tables and indexes, with all in the main file.
func (b *bed) pages(names ...string) map[string]int64 {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.databasePath())
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		b.t.Fatal(err)
	}
	at := map[string]int64{}
	for _, name := range names {
		var page int64
		if err := db.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = ?", name).Scan(&page); err != nil {
			b.t.Fatalf("%s: %v", name, err)
		}
		at[name] = page
	}
	return at
}

// damage writes over a page of the server's database; mend puts back what stood there.
func (b *bed) damage(page int64) (mend func()) {
	b.t.Helper()
	f, err := os.OpenFile(b.databasePath(), os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	was, bad := make([]byte, 4096), bytes.Repeat([]byte{0xff}, 4096)
	if _, err := f.ReadAt(was, (page-1)*4096); err != nil {
		b.t.Fatal(err)
	}
	if _, err := f.WriteAt(bad, (page-1)*4096); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		b.t.Helper()
		// As a person does it: another file in its place.
		whole, err := os.ReadFile(b.databasePath())
		if err == nil {
			copy(whole[(page-1)*4096:], was)
			err = os.WriteFile(b.databasePath()+".sound", whole, 0o600)
		}
		if err == nil {
			err = os.Rename(b.databasePath()+".sound", b.databasePath())
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
}

// TestADamagedDatabase of the server keeps everybody out when it can't be told who
// was at work, with its path and an act; what is parked is not lost by it.
func TestADamagedDatabase(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"session_v2", "session_v2_time_suspended_idx", "kv", "sqlite_autoindex_kv_1", "session_message", "event", "sqlite_schema"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.start()
			b.phase(Running)
			id := b.prompt("[[slow n=900 ms=50]]")
			b.atWork(id)
			if _, err := b.client.StopServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.waits(id)
			b.stop()
			claim(t, b.databasePath(), 1)
			b.exec(`INSERT INTO kv (key, value, time_created, time_updated) VALUES ('job.background/x',
				'{"id":"x","status":"running","recovery":{"kind":"shell","sessionID":"ses_bench00001","command":"true"}}', 1, 1)`)
			page := int64(1)
			if what != "sqlite_schema" {
				page = b.pages(what)[what]
			} else {
				b.pages()
			}
			requests := b.requests()
			mend := b.damage(page)
			b.unfinished = true
			b.start()
			b.waitsWith(id)
			switch what {
			case "session_message", "event": // who would resume is known all the same
				if _, err := b.client.StartServer(t.Context()); err != nil {
					t.Log(err)
				}
				b.waits(id, "ses_bench00001")
			default:
				go b.client.StartServer(context.WithoutCancel(t.Context())) //nolint:errcheck // the status tells
				b.phase(Blocked)
				b.said("opencode.db", "it is damaged", "put back a sound copy")
				if !b.locked(b.serverLock()) {
					t.Error("a server could be started by others")
				}
				b.waitsWith(id)
			}
			mend()
			b.status("it runs", func(st control.Status) bool { return st.Server.State == string(Running) })
			b.waits(id, "ses_bench00001")
			b.quiet(requests)
		})
	}
}

// waitsWith waits until the session is among what is pending.
func (b *bed) waitsWith(id string) {
	b.t.Helper()
	b.until("pending", func() bool {
		p, err := b.client.Pending(b.t.Context())
		for _, s := range p.Pending {
			if s.ID == id {
				return true
			}
		}
		return err != nil && errors.Is(err, context.Canceled)
	}, func() any { p, err := b.client.Pending(b.t.Context()); return fmt.Sprint(p, err) })
}

// TestADatabaseOfAnotherShape is left alone, and said, when its server is of a
// version that came after this program.
func TestADatabaseOfAnotherShape(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, back, says string }{
		"the claim's column renamed": {
			"ALTER TABLE session_v2 RENAME COLUMN time_suspended TO claimed_since", "ALTER TABLE session_v2 RENAME COLUMN claimed_since TO time_suspended", "has none or several of the columns",
		},
		"claims in a table of their own": {
			"CREATE TABLE session_claim AS SELECT id, time_suspended FROM session_v2; ALTER TABLE session_v2 RENAME COLUMN time_suspended TO moved", "ALTER TABLE session_v2 RENAME COLUMN moved TO time_suspended", "has none or several of the columns",
		},
		"a second claim": {
			"ALTER TABLE session_v2 ADD execution_claimed_at INTEGER", "ALTER TABLE session_v2 DROP COLUMN execution_claimed_at", "has none or several of the columns",
		},
		"a claim that is no time": {
			"UPDATE session_v2 SET time_suspended = '2026-12-01T00:00:00Z' WHERE id = 'ses_bench00001'", "UPDATE session_v2 SET time_suspended = 1790000000000 WHERE id = 'ses_bench00001'", "is no time",
		},
		"the table is a view": {
			"ALTER TABLE session_v2 RENAME TO session_v3; CREATE VIEW session_v2 AS SELECT * FROM session_v3", "DROP VIEW session_v2; ALTER TABLE session_v3 RENAME TO session_v2", "update intermission",
		},
		"jobs elsewhere": {
			"ALTER TABLE kv RENAME TO kv_v2", "ALTER TABLE kv_v2 RENAME TO kv", "no table kv",
		},
		"a job that can't be read": {
			"INSERT INTO kv (key, value, time_created, time_updated) VALUES ('job.background/x', 'not JSON', 1, 1)", "DELETE FROM kv WHERE key = 'job.background/x'", "background job",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.unfinished = true
			b.start()
			b.phase(Running)
			b.stop()
			claim(t, b.databasePath(), 1)
			b.exec(c.change)
			b.start()
			b.phase(Blocked)
			b.said("opencode.db", c.says, "update intermission")
			b.until("the lock is held", func() bool { return b.locked(b.serverLock()) }, func() any { return nil })
			b.exec(c.back)
			b.phase(Running)
			b.waits("ses_bench00001")
			b.quiet(0)
		})
	}
}

// TestALedgerOfANewerVersion keeps everybody out, and is left as it is.
func TestALedgerOfANewerVersion(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	b.phase(Running)
	b.stop()
	claim(t, b.databasePath(), 1)
	version := func(n string) (was string) {
		db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.QueryRow("PRAGMA user_version").Scan(&was); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("PRAGMA user_version = " + n); err != nil {
			t.Fatal(err)
		}
		return was
	}
	was := version("999")
	b.unfinished = true
	b.start()
	b.phase(Blocked)
	b.said(b.o.Paths.Ledger, "install the newer program again")
	b.until("the lock is held", func() bool { return b.locked(b.serverLock()) }, func() any { return nil })
	if _, err := strconv.Atoi(was); err != nil {
		t.Fatal(err)
	}
	version(was)
	b.phase(Running)
	b.waits("ses_bench00001")
	b.quiet(0)
}
