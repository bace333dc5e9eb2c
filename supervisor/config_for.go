package supervisor

import (
	"fmt"
	"os"

	"intermission/platform"
	"intermission/supervisor/control"
)

// ConfigFor reads the configuration of whoever has this environment, as each start of
// ours does. A file that the environment names must be there.
func ConfigFor(paths platform.Paths, getenv func(string) string) (Config, error) {
	if name := getenv("INTERMISSION_CONFIG"); name != "" {
		if _, err := os.Stat(name); err != nil {
			return Config{}, fmt.Errorf("INTERMISSION_CONFIG names a file that can't be read: %w; create it, or unset the variable", err)
		}
	}
	return LoadConfig(paths.ConfigFile)
}

// startable is an error when the next supervisor would not start, since the
// configuration has changed to what can't be read: then this one goes on.
func (s *supervisor) startable() error {
	if _, err := ConfigFor(s.Paths, os.Getenv); err != nil {
		return &control.Error{Code: control.CodeRefused, Message: fmt.Sprintf("the next supervisor would not start, so this one stays: %v; mend that, then: intermission service restart", err)}
	}
	return nil
}
