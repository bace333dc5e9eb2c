//go:build linux

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// user is a person with intermission on a machine: the supervisor, the commands, and
// a client of the server's own.
type user struct {
	*sandbox
	bed
	supervisor *process
}

func newUser(t testing.TB, make func(testing.TB, *sandbox) bed) *user {
	t.Helper()
	s := newSandbox(t)
	u := &user{sandbox: s, bed: make(t, s)}
	words, err := json.Marshal(u.command()) // a TOML array of these is the same
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "[server]\ncommand = "+string(words)+"\n", "config", "intermission", "config.toml")
	return u
}

// status is the part of `status --json` that the flows look at.
type status struct {
	Supervisor struct{ PID int }
	Server     struct {
		State, Desired, Generation, Reason, Available string
		PID, Restarts                                 int
		Adopted                                       bool
	}
	Sessions struct {
		Active  []string
		Working []working
		Pending int
	}
}

// working is the part of a session at work that the flows look at.
type working struct {
	ID, Title, Directory  string
	StartedAt, ProgressAt int64
}

// suspension is the part of an entry of `pending --json` that the flows look at.
type suspension struct {
	ID, Title, Directory, Cause, State, Reason string
	SuspendedAt                                int64
	Resumes                                    int
	Jobs                                       []struct{ Kind, Text, Status string }
	LastPrompt                                 struct{ Text string }
	LastTool                                   *struct{ Name, Input, Status string }
}

// ask runs a command with --json and reads its answer.
func (u *user) ask(t testing.TB, out any, args ...string) error {
	t.Helper()
	r := u.exec(t, program, append(args, "--json")...)
	if r.exit != 0 {
		return fmt.Errorf("%q: %v", args, r)
	}
	if err := json.Unmarshal([]byte(r.stdout), out); err != nil {
		return fmt.Errorf("%q: %w: %v", args, err, r)
	}
	return nil
}

// launch starts the supervisor and doesn't wait for anything.
func (u *user) launch(t testing.TB) *process {
	t.Helper()
	return u.start(t, nil, program, "run")
}

// up starts the supervisor and waits until its server runs.
func (u *user) up(t testing.TB) status {
	t.Helper()
	u.supervisor = u.launch(t)
	return u.serving(t)
}

// serving waits until the supervisor's server runs.
func (u *user) serving(t testing.TB) status {
	t.Helper()
	var st status
	eventually(t, "a running server", func() error {
		st = status{}
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if st.Server.State != "running" || !alive(st.Server.PID) {
			return fmt.Errorf("state %s, pid %d, reason %q", st.Server.State, st.Server.PID, st.Server.Reason)
		}
		return nil
	})
	return st
}

// down stops the supervisor as a service manager does, and looks that nothing is left.
func (u *user) down(t testing.TB) {
	t.Helper()
	u.supervisor.end(t, syscall.SIGTERM)
	if code := u.supervisor.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the supervisor ended with %v after SIGTERM", u.supervisor.cmd.ProcessState)
	}
	u.noServer(t)
}

func (u *user) noServer(t testing.TB) {
	t.Helper()
	if pids := u.running(u.serverWords()...); len(pids) > 0 {
		t.Errorf("servers %v live on after a graceful stop", pids)
	}
}

// client connects to the managed server.
func (u *user) client(t testing.TB) api {
	t.Helper()
	var a api
	eventually(t, "a client of the managed server", func() (err error) {
		a, err = u.connect()
		return err
	})
	return a
}

func (u *user) pending(t testing.TB) []suspension {
	t.Helper()
	var p struct{ Pending []suspension }
	if err := u.ask(t, &p, "pending"); err != nil {
		t.Fatal(err)
	}
	return p.Pending
}

// wantPending waits until exactly these sessions are pending, and gives their suspensions in the same order.
func (u *user) wantPending(t testing.TB, want ...work) []suspension {
	t.Helper()
	found := make([]suspension, len(want))
	eventually(t, "the pending suspensions", func() error {
		pending := u.pending(t)
		if len(pending) != len(want) {
			return fmt.Errorf("%d are pending, not %d: %+v", len(pending), len(want), pending)
		}
		for i, w := range want {
			at := -1
			for j, p := range pending {
				if p.ID == w.id {
					at = j
				}
			}
			if at < 0 {
				return fmt.Errorf("%s is not among %+v", w.marker, pending)
			}
			found[i] = pending[at]
		}
		return nil
	})
	return found
}

// quiet holds that nothing reaches the model by itself, for a second, three times as
// long as a server takes from its readiness to its sweep.
func (u *user) quiet(t testing.TB, requests int) {
	t.Helper()
	always(t, time.Second, "quiet", func() error {
		if n := u.requests(t); n != requests {
			return fmt.Errorf("%d requests reached the model without consent", n-requests)
		}
		return nil
	})
}

// idle waits until a session executes no more.
func (u *user) idle(t testing.TB, a api, w work) {
	t.Helper()
	eventually(t, w.marker+" idle", func() error {
		busy, err := u.active(a, w.id, w.directory)
		if err == nil && busy {
			err = errors.New("it executes")
		}
		return err
	})
}

// resume consents, naming the suspension that was seen.
func (u *user) resume(t testing.TB, p suspension) result {
	t.Helper()
	return u.exec(t, program, "resume", p.ID, "--at", strconv.FormatInt(p.SuspendedAt, 10), "--yes", "--json")
}

// outcome reads what a resume says.
func outcome(t testing.TB, r result) string {
	t.Helper()
	var answer struct{ ID, Outcome, Reason string }
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil {
		t.Fatalf("cannot read the answer of a resume: %v: %v", err, r)
	}
	return answer.Outcome
}
