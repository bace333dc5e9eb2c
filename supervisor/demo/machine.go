package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"intermission/platform"
	"intermission/supervisor/control"
)

// machine is one user's machine, below a directory of its own. What is started on
// it carries its home in the environment, by which it is found again.
type machine struct {
	self  string
	root  string
	env   []string
	paths platform.Paths
	user  *control.Client // of the supervisor, when one runs

	started  []platform.Identity // children, and servers that were seen
	children []*process
}

// newMachine makes a machine. More is added to its environment.
func newMachine(self, root string, more ...string) (*machine, error) {
	m := &machine{self: self, root: root}
	for _, dir := range []string{"home", "config", "state", "data", "cache", "run", "tmp"} {
		if err := os.MkdirAll(m.path(dir), 0o700); err != nil {
			return nil, fmt.Errorf("cannot make a directory for the demo: %w", err)
		}
	}
	m.env = append(m.environment(os.Environ()), more...)
	paths, err := platform.FindPaths(m.getenv)
	if err != nil {
		return nil, err
	}
	m.paths, m.user = paths, control.Dial(paths.Socket)
	return m, m.configure()
}

func (m *machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.root}, elem...)...)
}

// environment is the given one, with everything that leads to the user's files replaced.
func (m *machine) environment(given []string) []string {
	own := map[string]string{
		"HOME": m.path("home"), "USERPROFILE": m.path("home"),
		"APPDATA": m.path("config"), "LOCALAPPDATA": m.path("state"),
		"TMPDIR": m.path("tmp"), "TMP": m.path("tmp"), "TEMP": m.path("tmp"),
		"XDG_CONFIG_HOME": m.path("config"), "XDG_STATE_HOME": m.path("state"), "XDG_DATA_HOME": m.path("data"),
		"XDG_CACHE_HOME": m.path("cache"), "XDG_RUNTIME_DIR": m.path("run"),
		"INTERMISSION_RUNTIME_DIR":        m.path("run"),
		"INTERMISSION_DEVSERVER_KIND":     "claims",
		"INTERMISSION_DEVSERVER_REQUESTS": m.path("requests.jsonl"),
	}
	var env []string
	for _, entry := range given {
		name, _, _ := strings.Cut(entry, "=")
		name = strings.ToUpper(name) // Windows writes them as it likes
		_, replaced := own[name]
		for _, prefix := range []string{"XDG_", "INTERMISSION_", "OPENCODE_"} {
			replaced = replaced || strings.HasPrefix(name, prefix)
		}
		if !replaced {
			env = append(env, entry)
		}
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}

func (m *machine) getenv(name string) string {
	for _, entry := range slices.Backward(m.env) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// configure tells intermission, with its own configuration file, which server to supervise.
func (m *machine) configure() error {
	text, err := toml.Marshal(map[string]any{"server": map[string]any{"command": append([]string{m.self}, serverWords...)}})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.paths.ConfigFile), 0o700); err != nil {
		return err
	}
	return os.WriteFile(m.paths.ConfigFile, text, 0o600)
}

// serverWords make our program the server.
var serverWords = []string{"devserver", "serve", "--service"}

// request is one request to the model, as the server counts it.
type request struct {
	Session string `json:"session"`
}

// requests gives everything that has reached the model.
func (m *machine) requests() ([]request, error) {
	text, err := os.ReadFile(m.getenv("INTERMISSION_DEVSERVER_REQUESTS"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []request
	for line := range bytes.Lines(text) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("cannot read the count of requests: %w", err)
		}
		all = append(all, r)
	}
	return all, nil
}

// process is a child of ours.
type process struct {
	id    platform.Identity
	ended chan struct{}
}

// start starts our program on the machine, its output in a file.
func (m *machine) start(args ...string) (*process, error) {
	out, err := os.OpenFile(m.path("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	child, err := platform.Start(platform.Spec{Argv: append([]string{m.self}, args...), Env: m.env, Dir: m.path("home"), Output: out})
	if err != nil {
		return nil, err
	}
	p := &process{child.Identity(), make(chan struct{})}
	m.started, m.children = append(m.started, p.id), append(m.children, p)
	go func() { // ends with the child, which end awaits
		child.Wait()
		close(p.ended)
	}()
	return p, nil
}

// found is the server that runs on the machine, once it is ready.
func (m *machine) found(ctx context.Context) (server, error) {
	s, err := findServer(ctx, m.path("state", "opencode", "service.json"))
	if err != nil {
		return s, err
	}
	id, err := platform.Identify(s.PID)
	if err != nil {
		return s, err
	}
	m.started = append(m.started, id)
	return s, nil
}

// alone starts the server with nobody above it.
func (m *machine) alone(ctx context.Context) (*process, server, error) {
	p, err := m.start(serverWords...)
	if err != nil {
		return nil, server{}, err
	}
	var s server
	err = m.await(ctx, "the server is not ready", func() (err error) {
		s, err = m.found(ctx)
		if err == nil && s.PID != p.id.PID {
			err = fmt.Errorf("pid %d is registered, not %d", s.PID, p.id.PID)
		}
		return err
	})
	return p, s, err
}

// supervised starts intermission and waits for its server.
func (m *machine) supervised(ctx context.Context) (*process, server, error) {
	p, err := m.start("run")
	if err != nil {
		return nil, server{}, err
	}
	var s server
	err = m.await(ctx, "the supervisor has no server that is ready", func() error {
		st, err := m.user.Status(ctx)
		if err != nil {
			return err
		}
		if st.Server.State != "running" {
			return fmt.Errorf("state %s, %s", st.Server.State, st.Server.Reason)
		}
		s, err = m.found(ctx)
		return err
	})
	return p, s, err
}

// stop asks a process to end, as the system does before a reboot.
func (m *machine) stop(ctx context.Context, p *process) error {
	if err := p.id.Signal(platform.Terminate); err != nil {
		return fmt.Errorf("cannot stop process %d: %w", p.id.PID, err)
	}
	return m.reaped(ctx, p)
}

// reaped waits until a child has ended, and all its threads with it: until then it
// may hold its locks, though it counts as dead already.
func (m *machine) reaped(ctx context.Context, p *process) error {
	return m.await(ctx, "a process does not end", func() error {
		select {
		case <-p.ended:
			return nil
		default:
			return fmt.Errorf("pid %d", p.id.PID)
		}
	})
}

const (
	lookEvery = 20 * time.Millisecond
	patience  = 15 * time.Second // for one thing to happen
)

// await looks until check gives nil. Its error tells what was missed, and what was said last.
func (m *machine) await(ctx context.Context, missed string, check func() error) error {
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-late.Done():
			return fmt.Errorf("%s: %w%s", missed, err, m.output())
		case <-tick.C:
		}
	}
}

// output gives the end of what was written on the machine, for an error.
func (m *machine) output() string {
	const most = 2000
	text, err := os.ReadFile(m.path("output"))
	if err != nil || len(text) == 0 {
		return ""
	}
	return "\nits output ended with:\n" + string(text[max(0, len(text)-most):])
}

// cut takes the power away: everything on the machine is killed, supervisor first.
func (m *machine) cut(ctx context.Context) error {
	if err := m.await(ctx, "processes stay", func() error {
		all, err := m.all(ctx)
		if err != nil {
			return err
		}
		for _, id := range all {
			_ = id.Signal(platform.Kill) // one that stays is seen at the next look
		}
		if len(all) > 0 {
			return fmt.Errorf("%d of them", len(all))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, p := range m.children {
		if err := m.reaped(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// all gives what runs on the machine, in the order of its start.
func (m *machine) all(ctx context.Context) ([]platform.Identity, error) {
	var all []platform.Identity
	for _, root := range m.started {
		tree, err := platform.Tree(ctx, root, "HOME="+m.path("home"))
		if err != nil {
			return nil, err
		}
		for _, id := range tree {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
	}
	return all, nil
}

// end ends everything on the machine, also after ctx. It can be called again.
func (m *machine) end(ctx context.Context) error {
	m.user.Close()
	return m.cut(context.WithoutCancel(ctx))
}
