package supervisor

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// places are the variables that decide where the server's files are: its database,
// its registration and its lock (opencode.DatabasePath, opencode.RegistrationDir).
var places = []string{"HOME", "USERPROFILE", "XDG_DATA_HOME", "XDG_STATE_HOME", "OPENCODE_DB", "OPENCODE_DISABLE_CHANNEL_DB"}

// placesIn gives the variables of e that decide where the server's files are.
func (e ServerEnvironment) placesIn() map[string]string {
	at := map[string]string{}
	for _, v := range e.Variables {
		if slices.Contains(places, v.Name) {
			at[v.Name] = v.Value
		}
	}
	return at
}

// hold puts the server's files back to where they were, and gives the names of the
// variables that would have moved them.
func (e *ServerEnvironment) hold(at map[string]string) (held []string) {
	now := e.placesIn()
	for _, name := range places {
		before, was := at[name]
		if value, is := now[name]; was == is && value == before {
			continue
		}
		held = append(held, name)
		e.Variables = slices.DeleteFunc(e.Variables, func(v Variable) bool { return v.Name == name })
		if was {
			e.Variables = append(e.Variables, Variable{name, before, FromBefore})
		}
	}
	slices.SortFunc(e.Variables, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return held
}

// placesOf gives what decided where the recorded server's files are: as it is recorded,
// else as it is remembered, else as its processes were started with, which environ
// tells. nil where it isn't known.
func placesOf(r record, memory environmentMemory, environ func(pid int) ([]string, error)) map[string]string {
	switch {
	case r.Places != nil:
		return r.Places
	case memory.Places != nil:
		return memory.Places
	}
	// What we started was given what we looked by; a shim behind it may change that.
	for _, id := range []platform.Identity{r.Spawned, r.Identity} {
		if !id.Alive() {
			continue
		}
		env, err := environ(id.PID)
		if err != nil || !id.Alive() { // else it was another's
			continue
		}
		at := map[string]string{}
		for _, name := range places {
			if slices.ContainsFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") }) {
				at[name] = lookUp(env, name)
			}
		}
		if at["HOME"]+at["USERPROFILE"] != "" { // programs write their title over what they were started with
			return at
		}
	}
	return nil
}

// places gives what decides where the server's files are, as it was settled last.
func (e *environment) places() map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last.placesIn()
}

// placed is an error when the recorded server lives, and may have its files elsewhere
// than where they are looked for now: it would be missed there, and be taken for one
// that nothing leads to any more.
func (s *supervisor) placed(r record) error {
	if !r.Identity.Alive() {
		return nil
	}
	e := s.surroundings()
	if r.Places != nil {
		if maps.Equal(r.Places, e.places()) {
			return nil
		}
		return fmt.Errorf("the server (pid %d) runs, and has its files elsewhere than this supervisor looks for them; run: intermission service restart", r.Identity.PID)
	}
	e.mu.Lock()
	known := e.known
	e.mu.Unlock()
	if known || s.leadsTo(r) {
		return nil
	}
	return fmt.Errorf("the server (pid %d) runs, and where its files are isn't known any more; put HOME, the XDG_ and the OPENCODE_ variables back to what they were when it was started, then run: intermission start", r.Identity.PID)
}

// leadsTo tells whether the recorded server is found where it is looked for now. v1 is
// not registered anywhere, but has made its database.
func (s *supervisor) leadsTo(r record) bool {
	if r.Generation != opencode.V1 {
		return s.program().Registered(r.ID)
	}
	path, err := s.program().DatabasePath()
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}
