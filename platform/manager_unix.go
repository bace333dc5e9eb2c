//go:build unix

package platform

import "context"

func underManager(ctx context.Context, _ string, run func(context.Context, *ServiceManager) error) error {
	return run(ctx, nil)
}
