package platform

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAside()
		bounded := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		broken := errors.New("broken")
		if err := a.do(bounded(), func() error { return broken }); !errors.Is(err, broken) {
			t.Errorf("its error: %v", err)
		}
		if err := a.do(bounded(), func() error { panic("oh") }); err == nil || err.Error() != "it panicked: oh" {
			t.Errorf("a panic: %v", err)
		}
		hold := make(chan struct{})
		if err := a.do(bounded(), func() error { <-hold; return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that hangs: %v", err)
		}
		ran := false
		if err := a.do(bounded(), func() error { ran = true; return nil }); !errors.Is(err, errAsideBusy) || ran {
			t.Errorf("one after it: %v, run: %t", err, ran)
		}
		close(hold)
		if err := a.do(bounded(), func() error { ran = true; return nil }); err != nil || !ran {
			t.Errorf("after it went on: %v, run: %t", err, ran)
		}
	})
}
