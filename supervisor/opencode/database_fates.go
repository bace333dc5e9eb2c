package opencode

import (
	"context"

	"intermission/restart"
)

// InFlight implements restart.Database.
func (d *Database) InFlight(ctx context.Context, since int64) ([]string, error) { return nil, nil }

// Fates implements restart.Database.
func (d *Database) Fates(ctx context.Context, sessions []string) (map[string]restart.Fate, error) {
	return nil, nil
}

// Describe implements restart.Database.
func (d *Database) Describe(ctx context.Context, sessions []string) (map[string]restart.Description, error) {
	return nil, nil
}
