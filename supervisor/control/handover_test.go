package control

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"intermission/platform"
)

// The call ends when the supervisor has let go of its lock, and not before.
func TestHandOverWaitsForTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := platform.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, &fake{hand: func(context.Context) (Ending, error) {
		return Ending{PID: os.Getpid(), Lock: path}, nil
	}})
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := b.client.HandOver(short); err == nil {
		t.Error("done while the lock is held")
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = lock.Unlock() })
	h, err := b.client.HandOver(t.Context())
	if err != nil || h.PID != os.Getpid() {
		t.Errorf("%+v, %v", h, err)
	}
}

// Who doesn't wait any more doesn't want it any more.
func TestHandOverIsBoundedByItsCaller(t *testing.T) {
	ended := make(chan struct{})
	b := setup(t, &fake{hand: func(ctx context.Context) (Ending, error) {
		<-ctx.Done()
		close(ended)
		return Ending{}, ctx.Err()
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.client.HandOver(ctx); err == nil {
		t.Error("done")
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the supervisor goes on with it")
	}
}
