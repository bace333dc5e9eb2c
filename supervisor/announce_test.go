package supervisor

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// switchable gives the bed a machine whose power the test announces: what it returns
// comes back once the event has been handled.
func (b *bed) switchable() (announce func(platform.PowerEvent)) {
	handlers := make(chan func(platform.PowerEvent), 1)
	b.o.Power = func(_ context.Context, _ *slog.Logger, handle func(platform.PowerEvent)) { handlers <- handle }
	var handle func(platform.PowerEvent)
	return func(e platform.PowerEvent) {
		if handle == nil {
			handle = <-handlers
		}
		handle(e)
	}
}

// written gives the sessions that stand in the ledger as suspended, with their times
// and what they wait for. The file is read, as whoever comes after a crash does.
func (b *bed) written() (at map[string]int64, waiting map[string]string) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(b.t.Context(), "SELECT id, time_suspended, coalesce(waiting, '') FROM session WHERE time_suspended IS NOT NULL")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	at, waiting = map[string]int64{}, map[string]string{}
	for rows.Next() {
		var id, what string
		var ms int64
		if err := rows.Scan(&id, &ms, &what); err != nil {
			b.t.Fatal(err)
		}
		at[id], waiting[id] = ms, what
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return at, waiting
}

// writes checks which sessions stand in the ledger as suspended.
func (b *bed) writes(ids ...string) map[string]int64 {
	b.t.Helper()
	at, _ := b.written()
	for _, id := range ids {
		if at[id] == 0 {
			b.t.Fatalf("%s isn't written down: %v", id, at)
		}
	}
	if len(at) != len(ids) {
		b.t.Fatalf("written down are %v, want %v", at, ids)
	}
	return at
}

// waits waits until exactly these sessions are pending.
func (b *bed) waits(ids ...string) []control.Suspension {
	b.t.Helper()
	var p control.Pending
	slices.Sort(ids)
	b.until("pending", func() bool {
		var err error
		p, err = b.client.Pending(b.t.Context())
		var got []string
		for _, s := range p.Pending {
			got = append(got, s.ID)
		}
		slices.Sort(got)
		return err == nil && slices.Equal(got, ids)
	}, func() any { return p })
	return p.Pending
}

func (b *bed) active(n int) {
	b.t.Helper()
	var st control.Status
	b.until("at work", func() bool {
		var err error
		st, err = b.client.Status(b.t.Context())
		return err == nil && len(st.Sessions.Active) == n
	}, func() any { return st.Sessions })
}

func TestAnnouncedSleep(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	st := b.phase(Running)
	works, asks := b.prompt("[[shell sleep 300]]"), b.prompt("[[permission]]")
	b.active(2)
	b.writes()
	announce(platform.PowerSleep)
	first := b.writes(works, asks)
	if _, waiting := b.written(); waiting[asks] != "permission" {
		t.Errorf("it waits for %q", waiting)
	}
	b.waits() // they are at work: nothing is shown that isn't so
	if st := b.phase(Running); st.Sessions.Pending != 0 || st.Sessions.Unknown {
		t.Errorf("counted as pending: %+v", st.Sessions)
	}
	b.active(2)
	announce(platform.PowerSleep) // twice
	if again := b.writes(works, asks); again[works] != first[works] {
		t.Errorf("another suspension: %v, then %v", first, again)
	}
	announce(platform.PowerWake)
	b.writes()
	announce(platform.PowerWake) // of a sleep that nobody announced
	b.active(2)
	b.waits()
	signal(t, st.Server.PID, platform.Kill)
	for _, s := range b.waits(works, asks) { // claims again: the crash finds them
		if s.Cause != restart.CauseCrash || s.State != restart.StatePending && s.State != restart.StateBlocked {
			t.Errorf("%+v", s)
		}
	}
}

// TestSleepFromWhichTheServerDoesNotWake: what was written down is what waits, with its time.
func TestSleepFromWhichTheServerDoesNotWake(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	st := b.phase(Running)
	works := b.prompt("[[shell sleep 300]]")
	b.active(1)
	announce(platform.PowerSleep)
	at := b.writes(works)
	late := b.prompt("[[shell sleep 300]]") // between announcement and sleep
	b.active(2)
	signal(t, st.Server.PID, platform.Kill)
	for _, s := range b.waits(works, late) {
		if s.ID == works && (s.Cause != restart.CauseShutdown || s.SuspendedAt != at[works]) {
			t.Errorf("it was suspended at %d: %+v", at[works], s)
		}
	}
	announce(platform.PowerWake) // of others now
	b.phase(Running)
	announce(platform.PowerWake)
	b.waits(works, late)
	b.active(0)
}

func TestAnnouncedShutdown(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	b.phase(Running)
	works, ends := b.prompt("[[shell sleep 300]]"), b.prompt("[[permission]]")
	b.active(2)
	announce(platform.PowerShutdown)
	b.writes(works, ends)
	announce(platform.PowerStays)
	b.writes()

	announce(platform.PowerSleep)
	announce(platform.PowerShutdown)
	announce(platform.PowerStays)
	b.writes(works, ends) // the sleep is still to come
	announce(platform.PowerWake)
	b.writes()

	announce(platform.PowerShutdown)
	b.ask("POST", "/api/session/"+ends+"/interrupt", map[string]any{}, nil) // its user's doing, in the last second
	b.active(1)
	late := b.prompt("[[shell sleep 300]]")
	b.active(2)
	b.writes(works)
	b.stop()
	b.writes(works, late)
	announceNext := b.switchable()
	b.start()
	b.phase(Running)
	announceNext(platform.PowerWake) // of the boot
	b.waits(works, late)
	b.active(0)
}

func TestAnnouncementsWhileNothingRuns(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	b.phase(Running)
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, e := range []platform.PowerEvent{platform.PowerSleep, platform.PowerWake, platform.PowerShutdown, platform.PowerStays, platform.PowerWake} {
		announce(e)
	}
	b.writes()
	b.stop()
	announce(platform.PowerShutdown) // after the end: nobody is held up
}

// TestAnnouncementsWhileTheServerStops: whichever is first, a stop's suspension is never taken back.
func TestAnnouncementsWhileTheServerStops(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	for range 3 {
		b.phase(Running)
		id := b.prompt("[[shell sleep 300]]")
		b.active(1)
		var stopped sync.WaitGroup
		stopped.Go(func() {
			if _, err := b.client.StopServer(t.Context()); err != nil {
				t.Error(err)
			}
		})
		for range 5 {
			announce(platform.PowerSleep)
			announce(platform.PowerWake)
		}
		stopped.Wait()
		b.phase(Stopped)
		b.waits(id)
		if s := b.waits(id)[0]; s.Cause != restart.CauseShutdown {
			t.Errorf("%+v", s)
		}
		if _, err := b.client.Dismiss(t.Context(), id, b.writes(id)[id]); err != nil {
			t.Fatal(err)
		}
		if _, err := b.client.StartServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAnnouncementThatCannotBeWritten: it is said, and nothing else fails; what could
// not be taken back at the wake is later.
func TestAnnouncementThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	announce := b.switchable()
	b.start()
	st := b.phase(Running)
	works := b.prompt("[[shell sleep 300]]")
	b.active(1)
	forbid := func(yes bool) {
		t.Helper()
		db, err := sql.Open("sqlite", "file:"+b.o.Paths.Ledger+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		statement := "DROP TRIGGER forbidden"
		if yes {
			statement = "CREATE TRIGGER forbidden BEFORE UPDATE ON session BEGIN SELECT RAISE(FAIL, 'forbidden'); END"
		}
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	forbid(true)
	announce(platform.PowerSleep)
	b.writes()
	forbid(false)
	announce(platform.PowerSleep)
	b.writes(works)
	forbid(true)
	announce(platform.PowerWake)
	b.writes(works)
	b.waits()
	forbid(false)
	b.until("it is taken back", func() bool { at, _ := b.written(); return len(at) == 0 }, func() any { return nil })
	signal(t, st.Server.PID, platform.Kill)
	b.waits(works)
}
