//go:build !linux

package platform

import (
	"context"
	"log/slog"
	"time"
)

// session is empty: the icon goes to the system itself.
type session struct{}

func openDesktop(_ context.Context, log *slog.Logger) (*Desktop, error) {
	key, err := desktopKey()
	if err != nil {
		return nil, err
	}
	return &Desktop{Key: key, log: log, done: make(chan struct{})}, nil
}

func (d *Desktop) close() {}

func (d *Desktop) keepRegistered(ctx context.Context, _ string, _, _ time.Duration) { <-ctx.Done() }
