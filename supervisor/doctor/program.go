package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/opencode"
)

// program is the server's program as it was found.
type program struct {
	*opencode.Install        // nil when none is known at all
	origin            string // how it was found
	err               error  // why it can't be used; the Install may be that of an earlier time then
}

// makeEnvironment is what the server would be given.
func (p *patient) makeEnvironment(ctx context.Context) supervisor.ServerEnvironment {
	for _, path := range p.environmentFiles() {
		// What would be waited for without end is not opened by others either.
		if _, _, err := platform.ReadTail(path, 1, true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			env := supervisor.ServerEnvironment{KeptFault: fmt.Errorf("cannot read the server's environment: %w; remove it", err)}
			for _, entry := range append(os.Environ(), p.Process...) {
				name, value, _ := strings.Cut(entry, "=")
				env.Variables = append(env.Variables, supervisor.Variable{Name: name, Value: value, Origin: supervisor.FromProcess})
			}
			return env
		}
	}
	// Only a service asks the login shell; what a terminal starts has its environment.
	s, err := p.service()
	return supervisor.Environment(ctx, supervisor.EnvironmentOptions{
		Paths: p.paths, Config: p.config, Login: err == nil && s.Installed, Process: p.Process,
	})
}

// environmentFiles are where variables of the server are kept: those of the user, and
// those that the supervisor and the login shell had last.
func (p *patient) environmentFiles() []string {
	return []string{filepath.Join(filepath.Dir(p.paths.ConfigFile), "environment"), filepath.Join(p.paths.State, "environment.json")}
}

// environ is the server's environment as a process takes it.
func (p *patient) environ() []string { return p.environment().Environ() }

// locate finds the program as the supervisor does, and notes how.
func (p *patient) locate(ctx context.Context) program {
	server := p.config.Server
	var login []string
	asked := false
	ask := func(ctx context.Context) (string, error) {
		asked = true
		path, err := platform.LoginPath(ctx)
		login = filepath.SplitList(path)
		return path, err
	}
	env := p.environ()
	install, err := opencode.Locate(ctx, opencode.Config{Command: server.Command, Generation: server.Generation, Port: server.Port, Env: env}, ask)
	if err != nil {
		return program{Install: p.remembered(env), err: err}
	}
	found := program{Install: install}
	switch {
	case len(server.Command) > 0 && strings.ContainsAny(server.Command[0], `/`+string(filepath.Separator)):
		found.origin = "named in " + p.paths.ConfigFile
	case !asked:
		found.origin = "on the PATH"
	case slices.Contains(login, filepath.Dir(install.Program)):
		found.origin = "on the login shell's PATH"
	default:
		found.origin = "in a well-known place"
	}
	return found
}

// remembered is the program that the supervisor found last, nil for none: where a
// server's files are can be told by it although it can't be run now.
func (p *patient) remembered(env []string) *opencode.Install {
	var i opencode.Install
	if readJSON(filepath.Join(p.paths.State, "program.json"), &i) != nil || i.Generation == "" {
		return nil
	}
	i.Env = env
	return &i
}

func (p *patient) checkProgram(context.Context) Check {
	found := p.program()
	var missing *opencode.NotFoundError
	var unknown *opencode.UnsupportedVersionError
	switch {
	case errors.As(found.err, &missing):
		act := fmt.Sprintf("install OpenCode (https://opencode.ai), or name it in %s: [server] command = [\"/path/to/opencode\", …]", p.paths.ConfigFile)
		if missing.Unfit != "" {
			return failed(act, "%s %s", strings.Join(missing.Looked, ", "), missing.Unfit)
		}
		return failed(act, "%q isn't found; looked in %s", missing.Command, strings.Join(missing.Looked, ", "))
	case errors.As(found.err, &unknown):
		return ok("%s runs", unknown.Program)
	case found.err != nil:
		return failed("run the program with --version, and mend what it says, or name another one as [server] command in "+p.paths.ConfigFile, "%s", found.err)
	}
	return ok("%s, %s", found.Program, found.origin)
}

func (p *patient) checkVersion(context.Context) Check {
	found := p.program()
	var unknown *opencode.UnsupportedVersionError
	switch {
	case errors.As(found.err, &unknown):
		return failed("update intermission, or name another program as [server] command in "+p.paths.ConfigFile,
			"%s reports %q; known are 1.x and 2.x", unknown.Program, firstLine(unknown.Version))
	case found.err != nil:
		return skipped("the program can't be asked")
	case found.Version == "":
		return warning("take generation out of [server] in "+p.paths.ConfigFile, "the program doesn't say its version; it is taken for %s because the configuration says so", found.Generation)
	}
	return ok("%s, generation %s", found.Version, found.Generation)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

func (p *patient) checkServer(context.Context) Check {
	st, err := p.status()
	if err != nil {
		return skipped("no supervisor can be asked")
	}
	s := st.Server
	reason, act := brief(errors.New(s.Reason))
	if s.Reason == "" {
		act = "intermission logs"
	}
	switch s.State {
	case "running":
		return ok("pid %d at %s, %s at work, %d wait for consent", s.PID, s.URL, sessions(len(st.Sessions.Active)), st.Sessions.Pending)
	case "stopped":
		if s.Desired == "stopped" && s.Reason == "" {
			return ok("stopped, as you wanted it; to start it: intermission start")
		}
		if s.Desired == "stopped" { // it isn't known whether that was wished
			return warning(act, "stopped; %s", reason)
		}
		return warning("intermission start", "stopped; %s", reason)
	case "failed", "blocked":
		return failed(act, "%s: %s", s.State, reason)
	case "backoff":
		return warning(act, "it died, and is started again: %s", reason)
	}
	return ok("%s", s.State)
}

func sessions(n int) string {
	if n == 1 {
		return "1 session"
	}
	return fmt.Sprintf("%d sessions", n)
}

func (p *patient) checkServerVersion(context.Context) Check {
	st, err := p.status()
	if err != nil || st.Server.State != "running" {
		return skipped("no server is running")
	}
	found := p.program()
	runs := st.Server.Version
	if found.err != nil || found.Version == "" || runs == "" {
		return skipped("the version of the program, or of the running server, is not known")
	}
	const act = "intermission restart (sessions at work then wait for consent)"
	switch order := compareVersions(runs, found.Version); {
	case runs == found.Version:
		return ok("the running server is of the program's version")
	case order < 0:
		return warning(act, "the running server is of %s, older than the program (%s), which is used from its next start on", runs, found.Version)
	case order > 0:
		return warning("update the program, or name the newer one as [server] command in "+p.paths.ConfigFile,
			"the running server is of %s, newer than the program (%s) that would be started next", runs, found.Version)
	}
	return warning(act, "the running server is of %s, the program of %s", runs, found.Version)
}

// compareVersions compares the numbers that two versions begin with; 0 when they are the same or there are none.
func compareVersions(a, b string) int {
	numbers := func(v string) (n []int) {
		v, _, _ = strings.Cut(v, "-")
		for part := range strings.SplitSeq(v, ".") {
			i, _ := strconv.Atoi(part)
			n = append(n, i)
		}
		return n
	}
	return slices.Compare(numbers(a), numbers(b))
}

func (p *patient) checkServerLock(context.Context) Check {
	found := p.program()
	if found.Install == nil {
		return skipped("the program isn't known")
	}
	path := found.LockPath()
	if path == "" {
		return skipped("a server of generation v1 takes no lock")
	}
	look, err := platform.LookAtServerLock(path)
	if err != nil {
		return failed("make the file readable to you: chmod 600 "+path, "%s", err)
	}
	st, noStatus := p.status()
	running := noStatus == nil && st.Server.State == "running"
	switch {
	case !look.Held && running && st.Server.Generation == string(opencode.V2):
		return failed("intermission restart", "free, although the managed server runs: another server could start beside it")
	case !look.Held:
		return ok("free")
	case running && (look.PID == 0 || look.PID == st.Server.PID):
		return ok("held by the managed server")
	case noStatus == nil && look.PID == st.Supervisor.PID && look.PID != 0:
		if st.Server.State == "blocked" || st.Server.State == "failed" {
			return warning("mend what keeps the server from starting (see the check server)", "held by the supervisor, so that nobody starts a server on what could not be parked")
		}
		return ok("held by the supervisor, for a moment")
	case noStatus != nil && none(noStatus):
		return warning(p.startAct(), "held by %s, which no supervisor watches: its sessions go on by themselves after its next restart", holder(look))
	case noStatus == nil && (st.Server.State == "starting" || st.Server.State == "stopping"):
		return ok("held by %s while the server is %s", holder(look), st.Server.State)
	}
	return failed(endAct(look), "held by %s, which is not the managed server", holder(look))
}

// asUser is what root is told: it never runs, and never installs for itself.
const asUser = "run this as the user whose sessions they are"

// startAct is how a supervisor is started here.
func (p *patient) startAct() string {
	s, err := p.service()
	installed := err == nil && s.Installed
	switch {
	case installed && s.Kind == platform.SystemdUser && (p.noManager || s.Unreachable) && !p.root:
		return "log in as yourself (ssh or console; su starts no user manager), or as root: loginctl enable-linger " + p.name()
	case installed && (!p.root || s.Kind == platform.SystemdSystem):
		return "intermission service start"
	case p.root:
		return asUser
	}
	return "intermission run"
}

// installAct is how the service is installed here.
func (p *patient) installAct() string {
	s, _ := p.service()
	switch {
	case p.root:
		return asUser
	case p.noManager || s.Unreachable:
		return "intermission service install --linger" // it has logind start the user manager
	}
	return "intermission service install"
}

// name is the user's, as other programs are to be told.
func (p *patient) name() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "NAME"
}

// serverRecord is what we read of the supervisor's record of its server.
type serverRecord struct {
	ID       string            `json:"id"`
	URL      string            `json:"url"`
	PID      int               `json:"pid"`
	Password string            `json:"password"`
	Identity platform.Identity `json:"identity"`
	Spawned  platform.Identity `json:"spawned"`
	Mark     string            `json:"mark"`
}

func (p *patient) checkOtherServers(ctx context.Context) Check {
	found := p.program()
	if found.Install == nil {
		return skipped("the program isn't known")
	}
	var ours serverRecord
	_ = readJSON(p.paths.ServerRecord, &ours) // none is the zero one
	st, noStatus := p.status()
	pid := 0
	if noStatus == nil {
		pid = st.Server.PID
	}
	inc, err := found.Discover(ctx)
	var other *opencode.IncumbentError
	switch {
	case err == nil && noStatus != nil && none(noStatus):
		if inc.PID == ours.PID && ours.Identity.Alive() {
			return warning(p.startAct(), "pid %d goes on without its supervisor; the next one adopts it", inc.PID)
		}
		return warning(p.startAct(), "pid %d at %s runs with no supervisor; the next one adopts it", inc.PID, inc.URL)
	case err == nil && noStatus == nil && inc.PID != pid && st.Server.State != "starting" && st.Server.State != "stopping":
		return failed(fmt.Sprintf("see that it is no longer wanted, and end it: kill %d", inc.PID), "pid %d is registered on the same data directory, and is not the managed server", inc.PID)
	case errors.As(err, &other) && other.PID != pid:
		return failed(fmt.Sprintf("see that it is no longer wanted, and end it: kill %d", other.PID), "pid %d is registered on the same data directory, but %s", other.PID, other.Reason)
	case errors.As(err, &other):
		return warning("intermission restart", "the managed server (pid %d) is up, but %s", other.PID, other.Reason)
	case err != nil && !errors.Is(err, opencode.ErrNone):
		return failed("try again", "%s", err)
	}
	return p.checkLeftovers(ctx, ours, pid)
}

// checkLeftovers looks for processes of our last server that have outlived it.
func (p *patient) checkLeftovers(ctx context.Context, ours serverRecord, managed int) Check {
	if ours.Mark == "" || ours.Spawned.PID == 0 || managed != 0 || ours.Identity.Alive() {
		return ok("none on this data directory")
	}
	tree, err := platform.Tree(ctx, ours.Spawned, opencode.Marker+"="+ours.Mark)
	if err != nil || len(tree) == 0 {
		return ok("none on this data directory")
	}
	var pids []string
	for _, id := range tree {
		pids = append(pids, strconv.Itoa(id.PID))
	}
	return warning("intermission start (it ends them), or: kill "+strings.Join(pids, " "), "%d processes of a server that has ended still run", len(pids))
}

// portTimeout bounds the question whether somebody listens.
const portTimeout = 2 * time.Second

func (p *patient) checkPort(ctx context.Context) Check {
	port := p.config.Server.Port
	found := p.program()
	switch {
	case found.Install == nil:
		return skipped("the program isn't known")
	case found.Generation != opencode.V1:
		return skipped("a server of generation v2 chooses its own")
	case port == 0:
		return ok("any free one")
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if st, err := p.status(); err == nil && strings.HasSuffix(st.Server.URL, address) && st.Server.PID != 0 {
		return ok("%d, in use by the managed server", port)
	}
	// To listen would be the surer test, and in the way of a server that starts in that moment.
	conn, err := (&net.Dialer{Timeout: portTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return ok("%d is free", port)
	}
	_ = conn.Close()
	return failed("free it, or set another [server] port in "+p.paths.ConfigFile, "%d is taken by another program", port)
}
