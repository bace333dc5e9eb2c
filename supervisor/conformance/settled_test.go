//go:build linux

package conformance

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// wentOnElsewhere lets the user go on with one of three suspended sessions in another
// server on the same data, and delete the second: both are settled. The third is
// offered, but not while its directory is gone.
func wentOnElsewhere(t *testing.T, u *user) {
	u.up(t)
	a := u.client(t)
	gone := begin(t, u.sandbox, u.bed, a, "gone", u.slow(900, 100), u.planner(), "")
	deleted := begin(t, u.sandbox, u.bed, a, "deleted", u.slow(900, 100), "", "")
	stays := begin(t, u.sandbox, u.bed, a, "stays", u.slow(900, 100), "", "")
	u.down(t)

	turns := u.turns(t, gone)
	other, a := u.elsewhere(t)
	if err := u.prompt(a, gone.id, "Just this.", gone.agent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the turn elsewhere", func() error {
		if u.turns(t, gone) == turns {
			return errors.New("it has not reached the model")
		}
		return nil
	})
	u.idle(t, a, gone)
	if err := u.delete(a, deleted.id); err != nil {
		t.Fatal(err)
	}
	other.end(t, syscall.SIGTERM)

	requests := u.requests(t)
	u.up(t)
	suspended := u.wantPending(t, stays)[0]
	for _, w := range []work{gone, deleted} {
		if r := u.exec(t, program, "resume", w.id, "--yes", "--json"); r.exit != 4 {
			t.Errorf("resume of %s, which is settled: %v", w.marker, r)
		}
	}

	away := stays.directory + ".away"
	if err := os.Rename(stays.directory, away); err != nil {
		t.Fatal(err)
	}
	if r := u.resume(t, suspended); r.exit != 5 || outcome(t, r) != "refused" {
		t.Errorf("resume without its directory: %v", r)
	}
	u.quiet(t, requests)
	if err := os.Rename(away, stays.directory); err != nil {
		t.Fatal(err)
	}
	turns = u.turns(t, stays)
	if r := u.resume(t, u.wantPending(t, stays)[0]); r.exit != 0 {
		t.Fatalf("resume with its directory back: %v", r)
	}
	oneContinuation(t, u, stays, turns)
}

// killedAfterResume kills the server under a session that was resumed: it is a new
// suspension with its count, and nothing resumes it by itself.
func killedAfterResume(t *testing.T, u *user) {
	w := suspendOne(t, u)
	u.goOn(u.slow(900, 100))
	before := u.up(t)
	first := u.wantPending(t, w)[0]
	if first.Resumes != 0 {
		t.Errorf("resumed %d times already", first.Resumes)
	}
	turns := u.turns(t, w)
	if r := u.resume(t, first); r.exit != 0 {
		t.Fatalf("resume: %v", r)
	}
	eventually(t, "the continuation", func() error {
		if u.turns(t, w) == turns {
			return errors.New("it has not reached the model")
		}
		return nil
	})
	requests := u.requests(t)
	kill(t, before.Server.PID)
	second := u.wantPending(t, w)[0]
	if second.Resumes != 1 || second.Cause != "crash" || second.SuspendedAt <= first.SuspendedAt {
		t.Errorf("after %+v it is %+v", first, second)
	}
	u.serving(t)
	u.quiet(t, requests)
	if r := u.resume(t, first); r.exit != 4 {
		t.Errorf("resume of a suspension that was replaced: %v", r)
	}
	u.quiet(t, requests)
}
