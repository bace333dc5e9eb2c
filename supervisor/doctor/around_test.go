package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// TestService: what the service manager says, as the checks word it.
func TestService(t *testing.T) {
	t.Parallel()
	good := platform.ServiceStatus{
		Installed: true, Kind: platform.SystemdUser, Definition: "/x/intermission.service", Version: "1.2.3",
		Current: true, Enabled: true, Running: true, State: "active (running)", Lingering: true,
	}
	up, down := error(nil), error(&control.Error{Code: control.CodeNoSupervisor, Message: "none"})
	for name, test := range map[string]struct {
		change     func(*platform.ServiceStatus)
		err        error
		supervisor error
		state      State
		act        string
	}{
		"good":          {func(*platform.ServiceStatus) {}, nil, up, OK, ""},
		"unknown":       {func(*platform.ServiceStatus) {}, errors.New("no bus"), up, Warning, "intermission service status"},
		"not installed": {func(s *platform.ServiceStatus) { s.Installed = false }, nil, up, Warning, "intermission service install"},
		"none":          {func(*platform.ServiceStatus) {}, platform.ErrNotInstalled, up, Warning, "intermission service install"},
		"older":         {func(s *platform.ServiceStatus) { s.Version = "1.0.0" }, nil, up, Warning, "intermission service install"},
		"changed":       {func(s *platform.ServiceStatus) { s.Current = false }, nil, up, Warning, "intermission service install"},
		"not enabled":   {func(s *platform.ServiceStatus) { s.Enabled = false }, nil, up, Warning, "intermission service install"},
		"dead":          {func(s *platform.ServiceStatus) { s.Running = false }, nil, down, Failed, "intermission service start"},
		"by hand":       {func(s *platform.ServiceStatus) { s.Running = false }, nil, up, Warning, "intermission service restart"},
	} {
		s := good
		test.change(&s)
		p := &patient{Options: Options{Version: "1.2.3"}}
		p.service = func() (platform.ServiceStatus, error) { return s, test.err }
		p.status = func() (control.Status, error) { return control.Status{}, test.supervisor }
		if c := p.checkService(t.Context()); c.State != test.state || c.Act != test.act {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestStartAndLingering(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status           platform.ServiceStatus
		start, lingering State
		words            string
	}{
		{platform.ServiceStatus{}, Skipped, Skipped, "no service"},
		{platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Enabled: true, Lingering: true}, OK, OK, "at boot"},
		{platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Enabled: true}, OK, OK, "intermission service install --linger"},
		{platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser}, Warning, OK, "intermission service install"},
		{platform.ServiceStatus{Installed: true, Kind: platform.LaunchdAgent, Enabled: true}, OK, Skipped, "at login"},
		{platform.ServiceStatus{Installed: true, Kind: platform.WindowsService, Enabled: true}, OK, Skipped, "at boot"},
	} {
		p := &patient{service: func() (platform.ServiceStatus, error) { return test.status, nil }}
		start, lingering := p.checkStart(t.Context()), p.checkLingering(t.Context())
		if start.State != test.start || lingering.State != test.lingering || !strings.Contains(fmt.Sprint(start, lingering), test.words) {
			t.Errorf("%+v: %+v, %+v", test.status, start, lingering)
		}
	}
}

// TestServerStates: what the supervisor says of its server.
func TestServerStates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		server control.ServerStatus
		state  State
		act    string
	}{
		{control.ServerStatus{State: "running"}, OK, ""},
		{control.ServerStatus{State: "starting"}, OK, ""},
		{control.ServerStatus{State: "stopped", Desired: "stopped"}, OK, ""},
		{control.ServerStatus{State: "stopped", Desired: "running", Reason: "stopped from outside"}, Warning, "intermission start"},
		{control.ServerStatus{State: "failed", Reason: "it died five times; intermission start"}, Failed, "intermission start"},
		{control.ServerStatus{State: "blocked", Reason: "the ledger is damaged; put back a copy"}, Failed, "put back a copy"},
		{control.ServerStatus{State: "backoff"}, Warning, "intermission logs"},
	} {
		p := &patient{status: func() (control.Status, error) { return control.Status{Server: test.server}, nil }}
		if c := p.checkServer(t.Context()); c.State != test.state || c.Act != test.act {
			t.Errorf("%+v: %+v", test.server, c)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	h.o.Now = func() time.Time { return now }
	h.finds("clock", OK, "synchronised")
	h.o.Clock = func() (bool, error) { return false, nil }
	h.finds("clock", Warning, platform.TimeServiceAct())
	h.o.Clock = func() (bool, error) { return false, platform.ErrUnknownClock }
	h.finds("clock", OK, "doesn't tell")
	h.o.Built = now.Add(time.Hour)
	h.finds("clock", Failed, "before this program was built")
	h.o.Built = now.Add(time.Minute) // another's clock
	h.finds("clock", OK)

	must(t, os.MkdirAll(h.paths.State, 0o700))
	ledger, err := restart.Open(h.paths.Ledger, func() time.Time { return now.Add(time.Hour) })
	must(t, err)
	suspend(t, ledger, now.Add(time.Hour))
	must(t, ledger.Close())
	h.finds("clock", Failed, "before the newest entry of the ledger")
	now = now.Add(2 * time.Hour)
	h.finds("clock", OK)
}

// suspend makes a suspension, with a line in the journal.
func suspend(t *testing.T, ledger *restart.Ledger, at time.Time) {
	t.Helper()
	must(t, ledger.BeginIncarnation(t.Context(), restart.Incarnation{ID: "i", Generation: "v2", Database: "/d", StartedAt: at.UnixMilli()}))
	must(t, ledger.Suspend(t.Context(), []string{"ses_1"}, at.UnixMilli()))
}

func TestLogs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("logs", OK, "none yet")
	must(t, os.MkdirAll(h.paths.Log, 0o700))
	for _, name := range []string{"server.log", "server.log.1", "tray.log", "tray-2026-11-30T00-00-00.000.log"} {
		must(t, os.WriteFile(filepath.Join(h.paths.Log, name), make([]byte, 1<<20), 0o600))
	}
	h.finds("logs", OK, "4.2 MB")
	h.config("[log]\nmax_size = \"100kB\"\nkeep = 1\n")
	h.finds("logs", Warning, "2.1 MB", "200 kB", "intermission service restart")
}

func TestProxies(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("proxies", OK, "none")
	h.env["https_proxy"] = "http://bob:" + plantedProxy + "@proxy:3128"
	h.env["NO_PROXY"] = "localhost"
	c := h.finds("proxies", OK, "https_proxy (from the supervisor's own environment)", "NO_PROXY")
	if strings.Contains(fmt.Sprint(c), plantedProxy) || strings.Contains(fmt.Sprint(c), "bob") {
		t.Errorf("%+v", c)
	}
	h.env["https_proxy"] = "http://"
	h.finds("proxies", Warning, "https_proxy", "correct")
	delete(h.env, "https_proxy")
	h.write("environment", "this line is "+plantedProxy+"\n")
	if c := h.finds("proxies", Warning, "environment:1"); strings.Contains(fmt.Sprint(c), plantedProxy) {
		t.Errorf("%+v", c)
	}
	must(t, os.Remove(filepath.Join(h.dir, "environment")))
	must(t, makeFIFO(filepath.Join(h.dir, "environment")))
	h.finds("proxies", Warning, "regular file")
}

func TestPath(t *testing.T) {
	t.Parallel()
	p := &patient{}
	var env supervisor.ServerEnvironment
	p.environment = func() supervisor.ServerEnvironment { return env }
	if c := p.checkPath(t.Context()); c.State != Warning || c.Act == "" {
		t.Errorf("%+v", c)
	}
	env.Variables = []supervisor.Variable{{Name: "PATH", Value: "/usr/bin", Origin: supervisor.FromBoth}}
	if c := p.checkPath(t.Context()); c.State != OK || c.Detail != "/usr/bin (from the login shell and the supervisor's own environment)" {
		t.Errorf("%+v", c)
	}
	env.LoginFault, env.LoginAt = errors.New("no answer in time"), time.Now()
	if c := p.checkPath(t.Context()); c.State != Warning || !strings.Contains(c.Detail, "no answer in time; what it said at") {
		t.Errorf("%+v", c)
	}
	env.LoginFault = fmt.Errorf("bash: %w", platform.ErrLoginFiles)
	if c := p.checkPath(t.Context()); c.State != Warning || !strings.Contains(c.Detail, "; what it said at") || !strings.Contains(c.Act, platform.LoginAsking) {
		t.Errorf("%+v", c)
	}
	env.LoginAt, env.LoginPlain = time.Time{}, true
	if c := p.checkPath(t.Context()); c.State != Warning || !strings.Contains(c.Detail, "without them") || from(env, supervisor.FromLoginShell) != "from the login shell without its login files" {
		t.Errorf("%+v", c)
	}
	env.Variables[0].Origin = supervisor.FromConfig
	if c := p.checkPath(t.Context()); c.State != Warning || !strings.Contains(c.Detail, "/usr/bin (from config.toml); the login shell doesn't tell the other variables") {
		t.Errorf("%+v", c)
	}
}

// Before any supervisor has run, nothing is said to be its environment.
func TestPathBeforeAService(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.o.Process = nil
	p := newPatient(t.Context(), h.o)
	p.service = func() (platform.ServiceStatus, error) { return platform.ServiceStatus{}, platform.ErrNotInstalled }
	if c := p.checkPath(t.Context()); c.State != OK || !strings.Contains(c.Detail, "no supervisor has run yet") || !strings.Contains(c.Detail, "isn't known until") {
		t.Errorf("%+v", c)
	}
	must(t, os.MkdirAll(h.paths.State, 0o700))
	must(t, os.WriteFile(filepath.Join(h.paths.State, "environment.json"), []byte(`{"process":["PATH=/given"]}`), 0o600))
	p = newPatient(t.Context(), h.o)
	p.service = func() (platform.ServiceStatus, error) { return platform.ServiceStatus{}, platform.ErrNotInstalled }
	if c := p.checkPath(t.Context()); c.State != OK || !strings.HasPrefix(c.Detail, "/given (from the supervisor's own environment); a service asks") {
		t.Errorf("%+v", c)
	}
	p.service = func() (platform.ServiceStatus, error) { return platform.ServiceStatus{Installed: true}, nil }
	if got := p.untilService(); got != "" {
		t.Error(got)
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	self, err := os.Executable()
	must(t, err)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	config := "[server]\ncommand = [%q]\nenvironment = { " + asVersion + " = \"1.18.33\" }\nport = %d\n"
	h.write("config.toml", fmt.Sprintf(config, self, port))
	h.finds("port", Failed, fmt.Sprint(port), "taken")
	must(t, l.Close())
	h.finds("port", OK, "free")
	h.write("config.toml", fmt.Sprintf(config, self, 0))
	h.finds("port", OK, "any")
	h.finds("server lock", Skipped, "v1")
}
