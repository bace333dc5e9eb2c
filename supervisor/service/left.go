package service

import (
	"context"
	"fmt"
	"os"

	"intermission/supervisor"
)

// endLeft stops a server that the service has left: its supervisor was killed, or had
// handed over, and the service was stopped before the next one was there.
func (b Background) endLeft(ctx context.Context) error {
	pid, alive := supervisor.LivingServer(b.Paths)
	if !alive {
		return nil
	}
	if running, err := b.running(ctx); err != nil || running != nil {
		return err // somebody else's, who supervises it
	}
	config, err := supervisor.LoadConfig(b.Paths.ConfigFile)
	if err != nil {
		config = supervisor.DefaultConfig() // for a stop it will do
	}
	if err := supervisor.StopLeft(ctx, supervisor.Options{
		Version: b.Version, Paths: b.Paths, Config: config, Environ: os.Environ(),
	}); err != nil {
		return fmt.Errorf("the service is stopped, but its server (pid %d) works on: %w", pid, err)
	}
	return nil
}
