package platform

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/windows/svc"
)

// scm plays the service manager for a handler.
type scm struct {
	requests chan svc.ChangeRequest
	changes  chan svc.Status
	ended    chan [2]any
	h        *serviceHandler
}

func startHandler(t *testing.T, ctx context.Context, run func(context.Context, *ServiceManager) error) *scm {
	m := &scm{make(chan svc.ChangeRequest), make(chan svc.Status, 64), make(chan [2]any, 1), &serviceHandler{ctx: ctx, run: run}}
	go func() {
		specific, code := m.h.Execute(nil, m.requests, m.changes)
		m.ended <- [2]any{specific, code}
	}()
	return m
}

// until takes changes until one is of the state.
func (m *scm) until(t *testing.T, want svc.State) svc.Status {
	t.Helper()
	for limit := time.After(20 * time.Second); ; {
		select {
		case st := <-m.changes:
			if st.State == want {
				return st
			}
		case <-limit:
			t.Fatalf("it doesn't become %s", serviceState(want))
		}
	}
}

func TestServiceHandlerStopsInOrder(t *testing.T) {
	for _, tt := range []struct {
		cmd  svc.Cmd
		want []string
	}{
		{svc.Stop, []string{"told: the service manager has told it to stop", "server stopped"}},
		{svc.PreShutdown, []string{"written", "told: the computer is shut down", "server stopped"}},
		{svc.Shutdown, []string{"written", "told: the computer is shut down", "server stopped"}},
	} {
		// Signals reach a service when somebody else logs off: they mean nothing.
		ctx, signalled := context.WithCancel(t.Context())
		var order []string
		release := make(chan struct{})
		m := startHandler(t, ctx, func(ctx context.Context, manager *ServiceManager) error {
			powerHearers.add(ctx, func(e PowerEvent) {
				if e == PowerShutdown {
					order = append(order, "written")
				}
			})
			if !manager.Restarts() {
				t.Error("the manager doesn't start it again")
			}
			manager.Starting(time.Minute)
			manager.Ready()
			<-ctx.Done()
			order = append(order, "told: "+context.Cause(ctx).Error())
			manager.Stopping(time.Minute)
			<-release
			order = append(order, "server stopped")
			return nil
		})
		if st := m.until(t, svc.StartPending); st.WaitHint == 0 {
			t.Error("it doesn't say how long it starts")
		}
		signalled()
		if st := m.until(t, svc.Running); st.Accepts != acceptable {
			t.Errorf("it accepts %b", st.Accepts)
		}
		m.requests <- svc.ChangeRequest{Cmd: tt.cmd}
		first := m.until(t, svc.StopPending)
		second := m.until(t, svc.StopPending)
		if second.CheckPoint <= first.CheckPoint || second.WaitHint != 60000 {
			t.Errorf("no progress: %+v then %+v", first, second)
		}
		third := m.until(t, svc.StopPending) // by itself, while it is at it
		if third.CheckPoint <= second.CheckPoint {
			t.Errorf("no progress: %+v then %+v", second, third)
		}
		select {
		case end := <-m.ended:
			t.Fatalf("it ended with %v before run had", end)
		default:
		}
		close(release)
		if end := <-m.ended; end != [2]any{false, uint32(0)} {
			t.Errorf("it ended with %v", end)
		}
		if !slices.Equal(order, tt.want) {
			t.Errorf("order %q, want %q", order, tt.want)
		}
	}
}

type handedOver struct{}

func (handedOver) Error() string   { return "handed over" }
func (handedOver) ExitStatus() int { return HandedOverStatus }

func TestServiceHandlerTellsFailures(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want [2]any
	}{
		{handedOver{}, [2]any{true, uint32(HandedOverStatus)}},
		{errors.New("no configuration"), [2]any{true, uint32(1)}},
	} {
		m := startHandler(t, t.Context(), func(context.Context, *ServiceManager) error { return tt.err })
		if end := <-m.ended; end != tt.want || !errors.Is(m.h.err, tt.err) {
			t.Errorf("%v: it ended with %v, %v", tt.err, end, m.h.err)
		}
	}
}

func TestServiceLifeDoesntFeignProgress(t *testing.T) {
	now := time.Now()
	s := serviceLife{status: svc.Status{State: svc.StopPending}, stopping: now}
	if !s.beats(now.Add(ServiceStopLimit)) || s.beats(now.Add(ServiceStopLimit+1)) {
		t.Error("a stop that hangs looks like one that gets on")
	}
	s = serviceLife{status: svc.Status{State: svc.Running}}
	if s.beats(now) || s.hears(word{state: managerReady}) || s.hears(word{state: managerAlive}) {
		t.Error("a running service changes its state")
	}
}

func TestServiceHandlerTellsPowerEvents(t *testing.T) {
	heard := make(chan PowerEvent, 8)
	m := startHandler(t, t.Context(), func(ctx context.Context, manager *ServiceManager) error {
		powerHearers.add(ctx, func(e PowerEvent) { heard <- e })
		manager.Ready()
		<-ctx.Done()
		return nil
	})
	m.until(t, svc.Running)
	for _, e := range []uint32{pbtSuspend, pbtResumeAutomatic, 0x7 /* PBT_APMRESUMESUSPEND */} {
		m.requests <- svc.ChangeRequest{Cmd: svc.PowerEvent, EventType: e}
	}
	m.requests <- svc.ChangeRequest{Cmd: svc.PreShutdown}
	<-m.ended
	close(heard)
	var got []PowerEvent
	for e := range heard {
		got = append(got, e)
	}
	if want := []PowerEvent{PowerSleep, PowerWake, PowerShutdown}; !slices.Equal(got, want) {
		t.Errorf("heard %v", got)
	}
}

func TestUnderManagerByHand(t *testing.T) {
	want := errors.New("its own")
	err := UnderManager(t.Context(), app, func(ctx context.Context, m *ServiceManager) error {
		if m.Restarts() || theRun.Load() == nil {
			t.Error("by hand there is no manager, but an end of the session")
		}
		go endSession(errSessionEnds, time.Hour)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errSessionEnds) {
			t.Errorf("it ended for %v", context.Cause(ctx))
		}
		return want
	})
	if !errors.Is(err, want) || theRun.Load() != nil {
		t.Errorf("got %v", err)
	}
}
