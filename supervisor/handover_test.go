package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

func TestHandsOverOnlyBetweenActs(t *testing.T) {
	for _, phase := range phases {
		s := State{Phase: phase, Wish: WishRunning, Seq: 3}
		next, fx := Reduce(DefaultPolicy, s, Input{Kind: InHand})
		waits := phase == Starting || phase == Stopping
		if next.Handed == waits || next.Leaving == waits || next.Phase != phase || waits != (len(fx) == 0) {
			t.Errorf("%s: %+v %+v", phase, next, fx)
		}
		for _, kind := range inputs {
			if after, fx := Reduce(DefaultPolicy, next, Input{Kind: kind, Seq: 3}); next.Handed && (after.Phase != phase || len(fx) > 0) {
				t.Errorf("%s, %s after the handover: %+v %+v", phase, kind, after, fx)
			}
		}
	}
	s := State{Phase: Running, Wish: WishRunning}
	if next, fx := Reduce(DefaultPolicy, s, Input{Kind: InHand, Ended: true}); next.Handed || len(fx) > 0 {
		t.Errorf("handed over a server whose end is being dealt with: %+v %+v", next, fx)
	}
	s = State{Phase: Blocked, Wish: WishRunning}
	if next, fx := Reduce(DefaultPolicy, s, Input{Kind: InHand, Kept: true}); next.Handed || len(fx) > 0 {
		t.Errorf("handed over the lock that keeps others out: %+v %+v", next, fx)
	}
}

// handedOver waits for the end of the supervisor by a handover.
func (b *bed) handedOver() {
	b.t.Helper()
	b.end = nil
	select {
	case err := <-b.ended:
		if !errors.Is(err, ErrHandedOver) {
			b.t.Errorf("Run: %v", err)
		}
	case <-time.After(40 * time.Second):
		b.t.Fatal("the supervisor does not end")
	}
	b.client.Close()
}

func TestHandover(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	before := b.phase(Running)
	id := b.prompt("[[slow n=120 ms=50]]")
	b.atWork(id)
	record, err := os.ReadFile(b.o.Paths.ServerRecord)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := b.client.HandOver(t.Context())
	if err != nil || answer.PID != os.Getpid() {
		t.Fatalf("%+v, %v", answer, err)
	}
	// What a start right after meets.
	lock, err := platform.TryLock(b.o.Paths.InstanceLock)
	if err != nil {
		t.Errorf("the instance lock: %v", err)
	} else if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	b.handedOver()
	if _, err := os.Stat(b.o.Paths.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
	if now, err := os.ReadFile(b.o.Paths.ServerRecord); err != nil || string(now) != string(record) {
		t.Errorf("the record has changed: %v", err)
	}
	b.start()
	after := b.phase(Running)
	if !after.Server.Adopted || after.Server.PID != before.Server.PID || after.Server.Incarnation != before.Server.Incarnation {
		t.Errorf("%+v", after.Server)
	}
	b.atWork(id)
	if p, err := b.client.Pending(t.Context()); err != nil || len(p.Pending) > 0 {
		t.Errorf("pending: %+v, %v", p, err)
	}
	b.until("its end", func() bool {
		st, err := b.client.Status(t.Context())
		return err == nil && len(st.Sessions.Active) == 0
	}, func() any { return nil })
	requests, err := os.ReadFile(b.dir + "/requests")
	if err != nil || strings.Count(string(requests), id) != 1 {
		t.Errorf("requests:\n%s%v", requests, err)
	}
}

// A manager's stop that comes when the handover has been decided finds nobody any more
// who would listen, and must not leave a server without a supervisor.
func TestToldToEndDuringAHandover(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	k := &keeper{restarts: true}
	b.o.Manager = k
	started, release := make(chan *supervisor, 2), make(chan struct{})
	b.o.reveal = func(s *supervisor) {
		s.workers.Go(func() { <-release })
		started <- s
	}
	b.start()
	s := <-started
	b.phase(Running)
	id := b.prompt("[[slow n=1200 ms=50]]")
	b.atWork(id)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = b.client.HandOver(t.Context()) // whoever comes first has the lock
	}()
	b.until("the decision", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.state.Handed
	}, func() any { return nil })
	b.end()
	close(release)
	b.stop() // without ErrHandedOver
	<-asked
	if pid, alive := LivingServer(b.o.Paths); alive {
		t.Errorf("pid %d lives on", pid)
	}
	if n := len(k.words("ready")); n != 1 {
		t.Errorf("ready was told %d times", n)
	}
	b.o.reveal = nil
	b.start()
	b.phase(Running)
	b.waits(id)
}

// All who ask hear that it is done, or that the supervisor is gone.
func TestHandoverAskedForByTwenty(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	before := b.phase(Running)
	answers := make(chan error, 20)
	for range 20 {
		go func() {
			client := control.Dial(b.o.Paths.Socket)
			defer client.Close()
			_, err := client.HandOver(t.Context())
			answers <- err
		}()
	}
	done := 0
	for range 20 {
		switch err := <-answers; {
		case err == nil:
			done++
		case code(err) != control.CodeNoSupervisor && !strings.Contains(err.Error(), "broke"):
			t.Error(err)
		}
	}
	if done == 0 {
		t.Error("nobody heard of it")
	}
	b.handedOver()
	b.start()
	if after := b.phase(Running); after.Server.PID != before.Server.PID {
		t.Errorf("%+v", after.Server)
	}
}

func TestHandoverWaitsForTheActUnderWay(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bed){
		"start": func(*bed) {},
		"stop": func(b *bed) {
			b.phase(Running)
			b.prompt("[[slow n=600 ms=50]]")
			go func() { _, _ = b.client.StopServer(b.t.Context()) }()
			b.until("the wish", func() bool {
				st, err := b.client.Status(b.t.Context())
				return err == nil && st.Server.Desired == "stopped"
			}, func() any { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.start()
			prepare(b)
			b.until("it is up", func() bool { _, err := b.client.Status(t.Context()); return err == nil }, func() any { return nil })
			if _, err := b.client.HandOver(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.handedOver()
			r, recorded := loadRecord(b.o.Paths.ServerRecord)
			b.start()
			if name == "stop" {
				b.phase(Stopped) // which comes before the ledger is read
				b.until("the stop was not cut: one is pending", func() bool {
					st, err := b.client.Status(t.Context())
					return err == nil && !st.Sessions.Unknown && st.Sessions.Pending == 1
				}, func() any { st, _ := b.client.Status(t.Context()); return st })
				if recorded {
					t.Errorf("the stop was cut: %+v", r)
				}
				return
			}
			if st := b.phase(Running); !r.Ready || st.Server.PID != r.PID || !st.Server.Adopted {
				t.Errorf("the start was cut: %+v %+v", r, st.Server)
			}
		})
	}
	t.Run("not for longer than who asks", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_FAULT": "never-healthy"})
		b.start()
		b.phase(Starting)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := b.client.HandOver(ctx); err == nil {
			t.Error("handed over in the middle of a start")
		}
		b.phase(Starting)
	})
}

// A consent that is queued goes back to pending, and none is executed twice.
func TestHandoverLosesNoConsent(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"INTERMISSION_DEVSERVER_CONTINUE": "[[slow n=200 ms=50]]"})
	b.o.Config.Resume.Concurrency = 2
	b.start()
	b.phase(Running)
	var ids []string
	for range 4 {
		ids = append(ids, b.prompt("[[slow n=900 ms=50]]"))
	}
	b.atWork(ids...)
	if _, err := b.client.RestartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	var clicks sync.WaitGroup
	outcomes := make(chan string, len(ids))
	for _, id := range ids {
		clicks.Go(func() {
			r, err := b.client.Resume(context.WithoutCancel(t.Context()), id, 0)
			outcomes <- fmt.Sprint(r.Outcome, err)
		})
	}
	b.until("two are queued", func() bool {
		p, err := b.client.Pending(t.Context())
		queued := 0
		for _, s := range p.Pending {
			if s.State == restart.StateQueued {
				queued++
			}
		}
		return err == nil && queued == 2
	}, func() any { return nil })
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	clicks.Wait()
	close(outcomes)
	count := map[string]int{}
	for o := range outcomes {
		count[o]++
	}
	if count["resumed<nil>"] != 2 || count["queued<nil>"] != 2 {
		t.Errorf("%v", count)
	}
	b.start()
	b.until("two at work, two pending", func() bool {
		st, err := b.client.Status(t.Context())
		return err == nil && st.Sessions.Pending == 2 && len(st.Sessions.Active) == 2
	}, func() any { st, _ := b.client.Status(t.Context()); return st.Sessions })
	p, err := b.client.Pending(t.Context())
	for _, s := range p.Pending {
		if s.State != restart.StatePending || s.Reason == "" {
			t.Errorf("%+v", s)
		}
	}
	requests, rerr := os.ReadFile(b.dir + "/requests")
	if err != nil || rerr != nil || strings.Count(string(requests), "\n") != len(ids)+2 {
		t.Errorf("requests:\n%s%v %v", requests, err, rerr)
	}
}

// With a configuration that can't be read there would be no successor.
func TestHandoverIsRefusedWithABrokenConfiguration(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Paths.ConfigFile = b.dir + "/config.toml"
	b.start()
	before := b.phase(Running)
	if err := os.WriteFile(b.o.Paths.ConfigFile, []byte("[server]\nno_such = 1\nport = \"x\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := b.client.HandOver(t.Context())
	if code(err) != control.CodeRefused || !strings.Contains(err.Error(), "no_such") || !strings.Contains(err.Error(), "port") {
		t.Errorf("%v", err)
	}
	if after := b.phase(Running); after.Server.PID != before.Server.PID || after.Supervisor != before.Supervisor {
		t.Errorf("%+v became %+v", before, after)
	}
	if err := os.Remove(b.o.Paths.ConfigFile); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Error(err)
	}
	b.handedOver()
	b.start()
	b.phase(Running)
}

// Who has shut the door says why; it is open once all have opened it.
func TestDoor(t *testing.T) {
	var d door
	d.close("a handover")
	d.close("an upgrade")
	d.close("a handover")
	for _, step := range []struct{ why, opened string }{
		{"a handover", "a handover"}, {"an upgrade", "a handover"}, {"an upgrade", "an upgrade"}, {"", "nothing that is shut"}, {"", ""},
	} {
		if got := d.enter(); got != step.why {
			t.Errorf("%q, not %q", got, step.why)
		}
		d.open(step.opened)
	}
}
