package supervisor

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"intermission/platform"
)

// keeper is a service manager that remembers what it was told.
type keeper struct {
	watchdog time.Duration
	restarts bool

	mu   sync.Mutex
	told []string
}

func (k *keeper) say(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if word := fmt.Sprintf(format, args...); len(k.told) == 0 || word != k.told[len(k.told)-1] {
		k.told = append(k.told, word)
	}
}

func (k *keeper) Ready()                   { k.say("ready") }
func (k *keeper) Alive()                   { k.say("alive") }
func (k *keeper) Starting(d time.Duration) { k.say("starting %s", d) }
func (k *keeper) Stopping(d time.Duration) { k.say("stopping %s", d) }
func (k *keeper) Status(line string)       { k.say("status %s", line) }
func (k *keeper) Restarts() bool           { return k.restarts }
func (k *keeper) Watchdog() time.Duration  { return k.watchdog }

// words gives what it was told that begins so.
func (k *keeper) words(beginning string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.told), func(w string) bool { return !strings.HasPrefix(w, beginning) })
}

// heard waits until it was told all of these, in this order.
func (b *bed) heard(k *keeper, want ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("the manager hears %q", want), func() bool {
		rest := want
		for _, w := range k.words("") {
			if len(rest) > 0 && w == rest[0] {
				rest = rest[1:]
			}
		}
		return len(rest) == 0
	}, func() any { return k.words("") })
}

func TestStatusLine(t *testing.T) {
	const secret = "the server exited with status 1; it last wrote: a prompt"
	for want, given := range map[string]struct {
		s       State
		pending int
	}{
		"running":                           {State{Phase: Running}, 0},
		"running, 1 session pending":        {State{Phase: Running}, 1},
		"running, 2 sessions pending":       {State{Phase: Running}, 2},
		"stopped":                           {State{Phase: Stopped}, 0},
		"backoff; see: intermission status": {State{Phase: Backoff, Reason: secret}, 0},
		"blocked, 1 session pending; see: intermission status": {State{Phase: Blocked, Reason: secret}, 1},
		"failed, 3 sessions pending; see: intermission status": {State{Phase: Failed, Reason: secret}, 3},
		"stopping": {State{Phase: Stopping, Reason: secret}, 0},
	} {
		if got := statusLine(given.s, given.pending); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}

func TestTheManagerHearsHowWeDo(t *testing.T) {
	t.Parallel()
	k := &keeper{watchdog: 20 * time.Millisecond}
	b := newBed(t, nil)
	b.o.Manager = k
	b.start()
	b.heard(k, "status starting", "ready")
	b.heard(k, "ready", "status running")
	b.heard(k, "ready", "alive")
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	if _, err := b.client.RestartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.heard(k, "status running", "status running, 1 session pending")
	b.stop()
	b.heard(k, "status running, 1 session pending", "stopping 1m28s")
	if n := len(k.words("ready")); n != 1 {
		t.Errorf("ready was told %d times", n)
	}
	if limit := leaveLimit + leaveRest; limit >= platform.ServiceStopLimit {
		t.Errorf("%s is not below the manager's own limit", limit)
	}
}

// Others can read a manager's display, and its journal, where warnings and errors go.
func TestNobodyElseReadsWhatTheServerWrote(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	b := newBed(t, nil)
	var journal, file strings.Builder
	b.o.Manager, b.o.Policy = k, Policy{Window: time.Minute, MaxDeaths: 1, MaxDelay: time.Second}
	b.o.Log = slog.New(slog.NewMultiHandler(slog.NewTextHandler(&file, nil), slog.NewTextHandler(&journal, &slog.HandlerOptions{Level: slog.LevelWarn})))
	program := filepath.Join(b.dir, "opencode")
	if err := writeProgram(program, []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo 2.2.0 && exit\necho SECRET prompt\nexit 3\n")); err != nil {
		t.Fatal(err)
	}
	b.o.Config.Server.Command[0] = program
	b.start()
	if st := b.phase(Failed); !strings.Contains(st.Server.Reason, "SECRET") {
		t.Errorf("status doesn't say why: %+v", st.Server)
	}
	b.heard(k, "ready", "status failed; see: intermission status")
	b.stop()
	if told := strings.Join(k.words(""), "\n"); strings.Contains(told, "SECRET") {
		t.Errorf("the manager was told:\n%s", told)
	}
	if said := journal.String(); !strings.Contains(said, "the server is failed; see: intermission status") || strings.Contains(said, "SECRET") {
		t.Errorf("the journal:\n%s", said)
	}
	if !strings.Contains(file.String(), "SECRET") {
		t.Errorf("our own file:\n%s", file.String())
	}
}

// A start that fails is over as well.
func TestReadyWhateverTheStartCameTo(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		"failed":  func(o *Options) { o.Config.Server.Command = []string{"no-such-opencode"} },
		"stopped": func(o *Options) { _ = saveWish(o.Paths.State, WishStopped) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			k := &keeper{}
			b := newBed(t, nil)
			if err := platform.EnsurePrivateDir(b.o.Paths.State); err != nil {
				t.Fatal(err)
			}
			b.o.Manager = k
			change(&b.o)
			b.start()
			b.phase(Phase(want))
			b.heard(k, "ready")
			b.stop()
			if told := k.words("alive"); len(told) > 0 {
				t.Errorf("a manager without watchdog hears %q", told)
			}
		})
	}
}

func TestALongStartIsExtended(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_FAULT": "never-healthy"})
	b.o.Manager = k
	b.o.Config.Server.ReadyTimeout = startTick + 3*time.Second
	b.o.Policy = Policy{Window: time.Minute, MaxDeaths: 1, MaxDelay: time.Second}
	b.start()
	b.heard(k, "starting 30s", "ready")
}

// A manager that has none to hear is none: the zero value, and the nil of its type.
func TestNoManager(t *testing.T) {
	t.Parallel()
	var none *platform.ServiceManager
	for _, m := range []Manager{nil, none} {
		s := &supervisor{Options: Options{Manager: m, Config: DefaultConfig()}}
		s.Config.Server.StopTimeout = time.Hour
		s.keep()
		s.Manager.Ready()
		if s.kept || s.stopLimit() != time.Hour {
			t.Errorf("%#v counts", m)
		}
		if s.state.Leaving = true; s.stopLimit() != leaveLimit {
			t.Errorf("%s to leave", s.stopLimit())
		}
	}
	s := &supervisor{Options: Options{Manager: &keeper{}, Config: DefaultConfig()}}
	s.keep()
	if s.Config.Server.StopTimeout = time.Hour; !s.kept || s.stopLimit() != leaveLimit {
		t.Errorf("%s under a manager", s.stopLimit())
	}
	if s.Config.Server.StopTimeout = time.Second; s.stopLimit() != time.Second {
		t.Errorf("%s where less is configured", s.stopLimit())
	}
}

// All that a leave may wait for, one after the other, is over before a manager kills.
func TestALeaveEndsBeforeItsManagerKills(t *testing.T) {
	s := &supervisor{state: State{Leaving: true}}
	s.Config.Server.StopTimeout = time.Hour
	const killed = 2 * time.Second // until one that was killed is gone
	if sum := s.stopLimit() + 3*toolGrace + killed + s.describePatience(); sum >= platform.ServiceStopLimit {
		t.Errorf("a leave may take %s of %s", sum, platform.ServiceStopLimit)
	}
}
