package platform

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHearers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearers
		h.announce(PowerSleep).wait(time.Hour) // nobody hears: nobody is waited for
		ctx, cancel := context.WithCancel(t.Context())
		slow, blocked := make(chan struct{}), make(chan struct{})
		var first, second []PowerEvent
		h.add(ctx, func(e PowerEvent) { first = append(first, e) })
		h.add(ctx, func(e PowerEvent) {
			if e == PowerSleep {
				close(blocked)
				<-slow
			}
			second = append(second, e)
		})
		began := time.Now()
		h.announce(PowerSleep).wait(time.Second)
		<-blocked
		if took := time.Since(began); took != time.Second {
			t.Errorf("who is slow was waited for %s", took)
		}
		wake := h.announce(PowerWake)
		synctest.Wait()
		if !slices.Equal(first, []PowerEvent{PowerSleep, PowerWake}) || len(second) != 0 {
			t.Errorf("heard %v and %v", first, second)
		}
		close(slow)
		wake.wait(time.Hour)
		if !slices.Equal(second, []PowerEvent{PowerSleep, PowerWake}) {
			t.Errorf("heard %v", second)
		}
		cancel()
		synctest.Wait()
		h.announce(PowerStays).wait(time.Hour)
		if len(first) != 2 || len(h.all) != 0 || time.Since(began) != time.Second {
			t.Errorf("after the end: %v, %d, %s", first, len(h.all), time.Since(began))
		}
	})
}

func TestHearersWhoEndAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearers
		ctx, cancel := context.WithCancel(t.Context())
		go1 := make(chan struct{})
		h.add(ctx, func(PowerEvent) { cancel(); <-go1 })
		h.announce(PowerSleep)
		synctest.Wait()
		late := h.announce(PowerShutdown) // comes while it is in its last one
		close(go1)
		began := time.Now()
		late.wait(time.Hour)
		synctest.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("it was waited for %s", took)
		}
		if got := len(h.all); got != 0 {
			t.Errorf("%d left", got)
		}
	})
}

func TestHearClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var asleep atomic.Int64 // so far
		var heard []time.Duration
		go hearClocks(t.Context(), func() clocks {
			awake := time.Since(began)
			return clocks{wall: began.Round(0).Add(awake + time.Duration(asleep.Load())), awake: awake}
		}, func(e PowerEvent) {
			if e == PowerWake {
				heard = append(heard, time.Since(began))
			}
		})
		synctest.Wait()
		after := func(d, sleeps time.Duration) { time.Sleep(d); asleep.Add(int64(sleeps)); synctest.Wait() }
		after(time.Minute+time.Second, time.Hour)
		after(time.Minute, shortestNap-1)
		after(time.Minute, -time.Hour) // the clock is set back
		after(time.Minute, shortestNap)
		after(time.Minute, 0)
		want := []time.Duration{time.Minute + clocksBeat, 4*time.Minute + clocksBeat}
		if !slices.Equal(heard, want) {
			t.Errorf("heard wakes after %v, want %v", heard, want)
		}
	})
}
