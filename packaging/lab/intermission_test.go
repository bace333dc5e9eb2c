//go:build linux

package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// status is the part of `status --json` that the tests look at.
type status struct {
	Supervisor struct {
		PID     int
		Version string
	}
	Server struct {
		State, Desired, Version, Reason string
		PID, Restarts                   int
		Adopted                         bool
	}
	Sessions struct {
		Active  []string
		Pending int
	}
}

// suspension is the part of an entry of `pending --json` that the tests look at.
type suspension struct {
	ID, Cause, State, Reason string
	SuspendedAt              int64
}

// ask runs a command of ours as the user, and reads its answer.
func (m *machine) ask(out any, args ...string) error {
	r := m.user(append(append([]string{"intermission"}, args...), "--json")...)
	if r.exit != 0 {
		return fmt.Errorf("%q: %v", args, r)
	}
	if err := json.Unmarshal([]byte(r.stdout), out); err != nil {
		return fmt.Errorf("%q: %w: %v", args, err, r)
	}
	return nil
}

// serving waits until a supervisor is there and its server runs.
func (m *machine) serving(t *testing.T) status {
	t.Helper()
	return m.statusWhen(t, "a running server", func(st status) error {
		if st.Server.State != "running" {
			return errors.New("its server doesn't run")
		}
		return nil
	})
}

// statusWhen waits until a supervisor is there and in a state that suits.
func (m *machine) statusWhen(t *testing.T, what string, suits func(status) error) status {
	t.Helper()
	var st status
	eventually(t, what, func() error {
		st = status{}
		if err := m.ask(&st, "status"); err != nil {
			return err
		}
		if err := suits(st); err != nil {
			return fmt.Errorf("%w: %+v", err, st)
		}
		return nil
	})
	return st
}

// wantPending waits until exactly these sessions are pending by that cause.
func (m *machine) wantPending(t *testing.T, cause string, ids ...string) {
	t.Helper()
	eventually(t, "the pending suspensions", func() error {
		var answer struct{ Pending []suspension }
		if err := m.ask(&answer, "pending"); err != nil {
			return err
		}
		var found []string
		for _, p := range answer.Pending {
			if p.State != "pending" || p.Cause != cause {
				return fmt.Errorf("%s is %s (%s) by %s, not pending by %s", p.ID, p.State, p.Reason, p.Cause, cause)
			}
			found = append(found, p.ID)
		}
		slices.Sort(found)
		if want := slices.Sorted(slices.Values(ids)); !slices.Equal(found, want) {
			return fmt.Errorf("pending are %v, not %v", found, want)
		}
		return nil
	})
}

// quiet holds that nothing reaches the model by itself, for three times as long as
// a server takes from its readiness to its sweep.
func (m *machine) quiet(t *testing.T, requests int) {
	t.Helper()
	always(t, time.Second, "quiet", func() error {
		if n := len(m.requests(t)); n != requests {
			return fmt.Errorf("%d requests reached the model without consent", n-requests)
		}
		return nil
	})
}

// resumeOne consents to one session: it executes once, and nothing else does.
func (m *machine) resumeOne(t *testing.T, id string) {
	t.Helper()
	turns, requests := m.turns(t, id), len(m.requests(t))
	var answer struct{ Outcome, Reason string }
	if err := m.ask(&answer, "resume", id, "--yes"); err != nil || answer.Outcome != "resumed" {
		t.Fatalf("resume: %+v, %v", answer, err)
	}
	eventually(t, "the continuation", func() error {
		if m.turns(t, id) == turns {
			return errors.New("it has not reached the model")
		}
		if active, err := m.active(); err != nil || active[id] {
			return fmt.Errorf("it executes: %w", err)
		}
		return nil
	})
	m.quiet(t, requests+1)
	if n := m.turns(t, id); n != turns+1 {
		t.Errorf("it went on %d times", n-turns)
	}
}

// unit gives a property of our unit, by the user's manager.
func (m *machine) unit(property string) string {
	return strings.TrimSpace(m.user("systemctl", "--user", "show", "intermission.service", "--value", "--property="+property).stdout)
}

// unitIs waits until a property of our unit has a value.
func (m *machine) unitIs(t *testing.T, property, want string) {
	t.Helper()
	eventually(t, property+"="+want, func() error {
		if got := m.unit(property); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// environ gives the environment of a process of the machine's.
func (m *machine) environ(t *testing.T, pid int) map[string]string {
	t.Helper()
	env := map[string]string{}
	for entry := range strings.SplitSeq(m.must(t, "cat", "/proc/"+strconv.Itoa(pid)+"/environ"), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}
