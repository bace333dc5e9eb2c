package supervisor

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// environment makes the server's environment during a supervisor's life. The login
// shell is asked at its beginning, and again where a person wants the server started:
// they may have changed their start-up files for it. A server that has crashed doesn't
// wait for a shell.
type environment struct {
	EnvironmentOptions
	ask askLogin
	run func(func()) // starts a goroutine

	mu     sync.Mutex
	asking chan struct{} // closed when the question under way is answered; nil when none is
	said   loginAnswer
	memory environmentMemory
	last   ServerEnvironment // as it was made last
	known  bool              // it is known where the recorded server's files are, or none is recorded that lives
	held   []string          // what would have moved the server's files
}

// surroundings gives what makes the server's environment. The first call begins to ask.
func (s *supervisor) surroundings() *environment {
	s.mu.Lock()
	e := s.env
	s.mu.Unlock()
	if e != nil {
		return e
	}
	// It reads files, for which nobody is to wait who only asks for the status.
	made := newEnvironment(EnvironmentOptions{Paths: s.Paths, Config: s.Config, Login: s.LoginEnvironment, Process: s.Environ}, s.askLogin, s.workers.Go)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.env == nil { // the first one made counts
		s.env = made
		made.renew(s.life)
	}
	return s.env
}

// renewEnvironment begins to ask anew where a person wants the server started. It
// comes before the launch, which waits for the answer; at a restart the server ends
// meanwhile.
func (s *supervisor) renewEnvironment(kind InputKind) {
	s.mu.Lock()
	idle := s.state.Phase != Running
	s.mu.Unlock()
	if kind == InRestart || kind == InStart && idle {
		s.surroundings().renew(s.life)
	}
}

func newEnvironment(o EnvironmentOptions, ask askLogin, run func(func())) *environment {
	if ask == nil {
		ask = platform.LoginEnvironment
	}
	e := &environment{EnvironmentOptions: o, ask: ask, run: run, memory: recallEnvironment(o.Paths.State)}
	e.last = makeEnvironment(o, loginAnswer{})
	e.last.KeptFault = nil // it is said when the first one is settled
	return e
}

// renew begins to ask the login shell, unless that is under way. It returns at once;
// what it starts ends with ctx.
func (e *environment) renew(ctx context.Context) {
	if !e.Login {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asking != nil {
		return
	}
	asking, memory := make(chan struct{}), e.memory
	e.asking = asking
	e.run(func() { // bounded by loginLimit
		said := askWithin(ctx, e.ask, e.Process, memory)
		e.mu.Lock()
		e.said, e.asking = said, nil
		e.mu.Unlock()
		close(asking)
	})
}

// await gives the login shell's answer, once no question is under way.
func (e *environment) await(ctx context.Context) loginAnswer {
	e.mu.Lock()
	asking := e.asking
	e.mu.Unlock()
	if asking != nil {
		select {
		case <-asking:
		case <-ctx.Done():
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said
}

// environ is the server's environment as it was made last.
func (s *supervisor) environ() []string {
	e := s.surroundings()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last.Environ()
}

// settleEnvironment makes the environment for a launch; where it is another than
// before, the program is looked for anew. What was decided about the places of the
// server's files stands while they are open, and while a server is recorded, as r, that
// may live or whose end is still to be dealt with.
func (s *supervisor) settleEnvironment(ctx context.Context, r record) {
	e := s.surroundings()
	said := e.await(ctx)
	made := makeEnvironment(e.EnvironmentOptions, said)
	_, err := os.Lstat(s.Paths.ServerRecord)
	recorded := err == nil // one that can't be read may be of a living server too
	e.mu.Lock()
	var at map[string]string
	switch {
	case s.dataLock != nil:
		at = e.last.placesIn()
	case recorded:
		at = placesOf(r, e.memory, platform.ProcessEnvironment)
	}
	e.known = at != nil || !r.Identity.Alive()
	var held []string
	if at != nil {
		held = made.hold(at)
	}
	if len(held) > 0 && !slices.Equal(held, e.held) {
		s.Log.Warn("the server's files stay where they are, until the supervisor is stopped in order and started again", "variables", strings.Join(held, ", "))
	}
	changed := !slices.Equal(made.Environ(), e.last.Environ())
	e.held = held
	e.note(s, made, said)
	e.mu.Unlock()
	if changed {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.install != nil {
			s.install = s.install.Outdated()
		}
	}
}

// note logs what is new of an environment, and remembers it. Under e.mu.
func (e *environment) note(s *supervisor, made ServerEnvironment, said loginAnswer) {
	if err := made.LoginFault; err != nil && (e.last.LoginFault == nil || e.last.LoginFault.Error() != err.Error()) {
		instead := "what we were given"
		switch {
		case !made.LoginAt.IsZero():
			instead = "its answer of " + made.LoginAt.Format("2006-01-02 15:04")
		case made.LoginPlain:
			instead = "its answer without login files"
		}
		s.Log.Warn("the login shell's environment can't be had", "counts instead", instead, "error", err)
	}
	if err := made.KeptFault; err != nil && (e.last.KeptFault == nil || e.last.KeptFault.Error() != err.Error()) {
		s.Log.Warn("the kept variables are not all used", "error", err)
	}
	e.last = made
	memory := e.memory
	memory.Process = e.Process
	if e.known { // else the next launch would take a guess for what was
		memory.Places = made.placesIn()
	}
	if said.fault == nil && !said.at.IsZero() {
		memory.Login, memory.LoginAt = said.env, said.at.UnixMilli()
	}
	if slices.Equal(memory.Process, e.memory.Process) && maps.Equal(memory.Places, e.memory.Places) && memory.LoginAt == e.memory.LoginAt {
		return
	}
	e.memory = memory
	if s.finish { // a stop by who isn't the supervisor that the server's starts are remembered of
		return
	}
	if err := memory.save(s.Paths.State); err != nil {
		s.Log.Warn("the server's environment is not remembered", "error", err)
	}
}

// loginPath is where else the program is looked for: in the login shell's PATH, where
// that isn't in the environment already; and if it was to be, the reason why it isn't.
func (e *environment) loginPath() func(context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fault := e.last.LoginFault
	switch {
	case !e.Login:
		return platform.LoginPath
	case fault == nil || !e.last.LoginAt.IsZero():
		return nil
	}
	return func(context.Context) (string, error) { return "", fault }
}

// forTerminal is what whoever opens a session in OpenCode's own interface needs of
// the server's environment, and may not have: where its files are, by which v2 finds the
// server; not its proxies, which would stand between the two.
func (e *environment) forTerminal(g opencode.Generation) map[string]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	env := map[string]string{}
	for _, v := range e.last.Variables {
		where := strings.HasPrefix(v.Name, "OPENCODE_") || strings.HasPrefix(v.Name, "XDG_") && (v.Origin == FromConfig || strings.HasSuffix(v.Name, "_HOME"))
		if g == opencode.V2 && where && v.Origin != FromProcess {
			env[v.Name] = v.Value
		}
	}
	return env
}
