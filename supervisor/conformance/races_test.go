//go:build linux

package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"intermission/supervisor/control"
)

// suspendOne brings one streaming session to suspension, and everything down.
func suspendOne(t *testing.T, u *user) work {
	t.Helper()
	u.up(t)
	w := begin(t, u.sandbox, u.bed, u.client(t), "stream", u.slow(900, 100), u.planner(), "")
	u.down(t)
	return w
}

// eightSupervisors starts as many at once: one runs, with one server, and one
// consent makes one continuation.
func eightSupervisors(t *testing.T, u *user) {
	w := suspendOne(t, u)
	requests, turns := u.requests(t), u.turns(t, w)
	var all []*process
	for range 8 {
		all = append(all, u.launch(t))
	}
	st := u.serving(t)
	eventually(t, "the end of all supervisors but one", func() error {
		n := 0
		for _, p := range all {
			if alive(p.pid()) {
				n++
				u.supervisor = p
			}
		}
		if n != 1 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	for _, p := range all {
		if p == u.supervisor {
			continue
		}
		p.wait(t)
		if code := p.cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("a supervisor that came too late exits %d, not 1", code)
		}
	}
	if st.Supervisor.PID != u.supervisor.pid() {
		t.Errorf("supervisor %d answers, %d runs", st.Supervisor.PID, u.supervisor.pid())
	}
	if pids := u.running(u.serverWords()...); len(pids) != 1 {
		t.Errorf("servers %v run", pids)
	}
	u.quiet(t, requests)
	if r := u.resume(t, u.wantPending(t, w)[0]); r.exit != 0 {
		t.Fatalf("resume: %v", r)
	}
	oneContinuation(t, u, w, turns)
	u.supervisor.end(t, syscall.SIGTERM)
}

// oneContinuation waits for it, and holds that no second one comes.
func oneContinuation(t *testing.T, u *user, w work, turns int) {
	t.Helper()
	eventually(t, "the continuation", func() error {
		if u.turns(t, w) == turns {
			return errors.New("it has not reached the model")
		}
		return nil
	})
	u.idle(t, u.client(t), w)
	always(t, time.Second, "one continuation", func() error {
		if n := u.turns(t, w); n != turns+1 {
			return fmt.Errorf("there are %d", n-turns)
		}
		return nil
	})
}

// twentyResumes consents from ten terminals and ten trays at once: one continues the
// session, the others hear that it is done.
func twentyResumes(t *testing.T, u *user) {
	w := suspendOne(t, u)
	u.up(t)
	turns := u.turns(t, w)
	suspended := u.wantPending(t, w)[0]
	outcomes := make(chan string, 20)
	var clicks sync.WaitGroup
	for range 10 {
		clicks.Go(func() {
			r := u.resume(t, suspended)
			outcomes <- fmt.Sprintf("%s, exit %d", outcome(t, r), r.exit)
		})
		clicks.Go(func() {
			tray := control.Dial(u.path("run", "intermission", "intermission.sock"))
			defer tray.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			res, err := tray.Resume(ctx, suspended.ID, suspended.SuspendedAt)
			var refused *control.Error
			switch {
			case err == nil:
				outcomes <- "tray " + res.Outcome
			case errors.As(err, &refused) && refused.Code == control.CodeNotPending:
				outcomes <- "tray already"
			default:
				t.Errorf("a tray's resume: %v", err)
			}
		})
	}
	clicks.Wait()
	close(outcomes)
	count := map[string]int{}
	for o := range outcomes {
		count[o]++
	}
	if won := count["resumed, exit 0"] + count["tray resumed"]; won != 1 {
		t.Errorf("%d resumes won, not one: %v", won, count)
	}
	if late := count["already, exit 4"] + count["tray already"]; late != 19 {
		t.Errorf("%d resumes came too late, not 19: %v", late, count)
	}
	oneContinuation(t, u, w, turns)
}
