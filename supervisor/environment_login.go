package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"time"

	"intermission/platform"
)

// loginLimit bounds a question to the login shell. It is the shell's own limit too.
const loginLimit = 5 * time.Second

// askLogin asks the login shell, which is started with given itself.
type askLogin func(ctx context.Context, given []string) ([]string, error)

// loginAnswer is what the login shell says; with a fault, what it said at another time.
type loginAnswer struct {
	env   []string
	at    time.Time // zero: it never said anything
	fault error
	plain bool // with a fault, and none of another time: env is what it says without its login files
}

// askWithin asks, and falls back on what is remembered.
func askWithin(ctx context.Context, ask askLogin, given []string, memory environmentMemory) loginAnswer {
	ctx, cancel := context.WithTimeoutCause(ctx, loginLimit, errors.New("the login shell gave no answer in time"))
	defer cancel()
	env, err := ask(ctx, given)
	if err == nil {
		return loginAnswer{env: env, at: time.Now()}
	}
	said := loginAnswer{fault: err}
	switch {
	case memory.LoginAt > 0:
		said.env, said.at = memory.Login, time.UnixMilli(memory.LoginAt)
	case errors.Is(err, platform.ErrLoginFiles):
		said.env, said.plain = env, true
	}
	return said
}

// environmentMemory is what is remembered of the environment, in a file of mode 0600,
// since it may hold secrets.
type environmentMemory struct {
	Login   []string          `json:"login"`   // what the login shell said last
	LoginAt int64             `json:"loginAt"` // when, in Unix milliseconds; 0 never
	Process []string          `json:"process"` // what the supervisor was given
	Places  map[string]string `json:"places"`  // what decides where the server's files are; nil not known
}

func environmentMemoryFile(state string) string { return filepath.Join(state, "environment.json") }

// maxMemory bounds what is remembered, in bytes: two environments, of 2 MB each at most
// where a process is to take them, with each byte escaped.
const maxMemory = 32 << 20

// recallEnvironment reads what is remembered; a file that is absent, cut off or none of
// ours is nothing.
func recallEnvironment(state string) environmentMemory {
	var m environmentMemory
	b, err := platform.ReadSmall(environmentMemoryFile(state), maxMemory)
	if err != nil || json.Unmarshal(b, &m) != nil {
		return environmentMemory{}
	}
	return m
}

func (m environmentMemory) save(state string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return platform.WriteFileAtomic(environmentMemoryFile(state), b)
}
