package platform

import (
	"context"
	"sync"
	"time"
)

// hearers are those who are told of power events, each in order and one at a time,
// and none waits for another.
type hearers struct {
	mu  sync.Mutex
	all map[*hearer]struct{}
}

type hearer struct {
	mu     sync.Mutex
	queue  []heard
	signal chan struct{} // has room for one: there is something in the queue
}

type heard struct {
	event PowerEvent
	done  func()
}

// add tells handle of each event until ctx ends.
func (h *hearers) add(ctx context.Context, handle func(PowerEvent)) {
	one := &hearer{signal: make(chan struct{}, 1)}
	h.mu.Lock()
	if h.all == nil {
		h.all = map[*hearer]struct{}{}
	}
	h.all[one] = struct{}{}
	h.mu.Unlock()
	go func() {
		defer h.drop(one)
		for {
			select {
			case <-ctx.Done():
				return
			case <-one.signal:
			}
			for _, e := range one.take() {
				if ctx.Err() == nil {
					handle(e.event)
				}
				e.done()
			}
		}
	}()
}

// drop takes one away. Nobody waits any longer for what it hasn't heard.
func (h *hearers) drop(one *hearer) {
	h.mu.Lock()
	delete(h.all, one)
	h.mu.Unlock()
	for _, e := range one.take() {
		e.done()
	}
}

func (o *hearer) take() []heard {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue = nil
	return queue
}

// announce tells all of an event, and doesn't wait for them.
func (h *hearers) announce(e PowerEvent) announcement {
	h.mu.Lock()
	defer h.mu.Unlock()
	var left sync.WaitGroup
	a := announcement{make(chan struct{})}
	for one := range h.all {
		left.Add(1)
		one.mu.Lock()
		one.queue = append(one.queue, heard{e, left.Done})
		one.mu.Unlock()
		select {
		case one.signal <- struct{}{}:
		default:
		}
	}
	go func() {
		left.Wait()
		close(a.heard)
	}()
	return a
}

// announcement is an event that is being heard.
type announcement struct{ heard chan struct{} }

// wait waits until all have heard it, for no longer than limit.
func (a announcement) wait(limit time.Duration) {
	give := time.NewTimer(limit)
	defer give.Stop()
	select {
	case <-a.heard:
	case <-give.C:
	}
}
