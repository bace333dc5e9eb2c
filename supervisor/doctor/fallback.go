package doctor

import (
	"maps"
	"os"
	"slices"
	"strings"

	"intermission/supervisor"
)

// orElse is the environment that is made of what is at hand, where env is empty.
func (p *patient) orElse(env supervisor.ServerEnvironment) supervisor.ServerEnvironment {
	if len(env.Variables) > 0 {
		return env
	}
	process := p.Process
	if process == nil {
		process = os.Environ()
	}
	for _, e := range process {
		if name, value, found := strings.Cut(e, "="); found && name != "" {
			env.Variables = append(env.Variables, supervisor.Variable{Name: name, Value: value, Origin: supervisor.FromProcess})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.config.Server.Environment)) {
		env.Variables = append(env.Variables, supervisor.Variable{Name: name, Value: p.config.Server.Environment[name], Origin: supervisor.FromConfig})
	}
	return env
}
