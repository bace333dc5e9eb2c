package platform

import (
	"context"
	"errors"
	"fmt"
)

var errAsideBusy = errors.New("an earlier call hangs still")

// aside runs calls that know no time limit, one at a time: of calls that hang,
// one goroutine is left behind and never a second.
type aside struct{ turn chan struct{} }

func newAside() aside { return aside{make(chan struct{}, 1)} }

// do runs f and waits for it until ctx ends. A panic of f is an error. When an
// earlier f doesn't end in time, f isn't run.
func (a aside) do(ctx context.Context, f func() error) error {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return errAsideBusy
	}
	result := make(chan error, 1)
	go func() {
		defer func() { <-a.turn }()
		defer func() {
			if p := recover(); p != nil {
				result <- fmt.Errorf("it panicked: %v", p)
			}
		}()
		result <- f()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer in time: %w", ctx.Err())
	}
}
