package platform

import (
	"context"
	"log/slog"
)

func watchPower(context.Context, *slog.Logger, func(PowerEvent)) {}
