//go:build !linux && !windows

package platform

import (
	"context"
	"log/slog"
)

func hearPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	watchPower(ctx, log, handle)
}
