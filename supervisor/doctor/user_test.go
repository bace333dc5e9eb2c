package doctor

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
)

// TestActsOfUsers: what root, and who has no user manager, are told to do works for them.
func TestActsOfUsers(t *testing.T) {
	t.Parallel()
	down := &control.Error{Code: control.CodeNoSupervisor, Message: "none"}
	unit := platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Version: "1.2.3", Current: true, Enabled: true,
		State: "not running: no systemd user manager answers; log in as eve (x); " + strings.Repeat("long ", 100)}
	unknown := platform.ServiceStatus{Installed: true, Kind: platform.SystemdUser, Unreachable: true, State: unit.State}
	system := platform.ServiceStatus{Installed: true, Kind: platform.SystemdSystem, Version: "1.2.3", Current: true, Enabled: true,
		Running: true, PID: 77, User: "eve", State: "active"}
	for name, test := range map[string]struct {
		user                 User
		service              platform.ServiceStatus
		supervisor, keeper   State
		supervisorAct, other string // the act of the check supervisor, and of service
	}{
		"a user":                      {User{}, platform.ServiceStatus{}, Failed, Warning, "intermission service install", "intermission service install"},
		"a user's unit":               {User{}, unit, Failed, Failed, "intermission service start", "intermission service start"},
		"no user manager":             {User{NoManager: true}, platform.ServiceStatus{}, Failed, Warning, "intermission service install --linger", "intermission service install --linger"},
		"a unit and no user manager":  {User{NoManager: true}, unit, Failed, Failed, "enable-linger", "enable-linger"},
		"a unit that isn't known":     {User{}, unknown, Failed, Failed, "enable-linger", "enable-linger"},
		"no unit, as files tell":      {User{}, platform.ServiceStatus{Unreachable: true}, Failed, Warning, "intermission service install --linger", "intermission service install --linger"},
		"root":                        {User{Root: true}, platform.ServiceStatus{}, Warning, Warning, asUser, asUser},
		"root with no user manager":   {User{Root: true, NoManager: true}, platform.ServiceStatus{}, Warning, Warning, asUser, asUser},
		"root beside a system's unit": {User{Root: true}, system, Skipped, OK, "", ""},
	} {
		p := &patient{Options: Options{Version: "1.2.3"}, root: test.user.Root, noManager: test.user.NoManager}
		p.service = func() (platform.ServiceStatus, error) { return test.service, nil }
		p.status = func() (control.Status, error) { return control.Status{}, down }
		for _, c := range []struct {
			Check
			state State
			act   string
		}{{p.checkSupervisor(t.Context()), test.supervisor, test.supervisorAct}, {p.checkService(t.Context()), test.keeper, test.other}} {
			if c.State != c.state || !strings.Contains(c.Act, c.act) || c.act == "" && c.Act != "" || len(c.Detail) > 300 {
				t.Errorf("%s: %+v", name, c.Check)
			}
			if test.user.Root && (strings.Contains(c.Act, "run") && c.Act != asUser || strings.Contains(c.Act, "install")) {
				t.Errorf("%s: root is told to %q", name, c.Act)
			}
		}
	}
}

// TestForeignRuntimeDir: su keeps the variable of who calls it.
func TestForeignRuntimeDir(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	delete(h.env, "INTERMISSION_RUNTIME_DIR")
	h.env["XDG_RUNTIME_DIR"] = filepath.Join(h.dir, "theirs")
	h.o.User = func() User { return User{RuntimeDir: "/run/user/0"} }
	h.finds("directories", Failed, "/run/user/0", "another user's", "su - ")
	for _, name := range ofRuntime[1:] {
		h.finds(name, Skipped, "see the check directories")
	}
	h.o.User = func() User { return User{} }
	h.finds("directories", OK)
}

// TestLockOfAnotherRuntimeDirectory: the supervisor that answers, by its record, has its lock beside its socket.
func TestLockOfAnotherRuntimeDirectory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // a pipe lies in no directory
	}
	h := newHome(t)
	_, stop := h.supervise("running")
	h.env["INTERMISSION_RUNTIME_DIR"] = filepath.Join(h.dir, "elsewhere")
	h.finds("supervisor", OK)
	h.finds("instance lock", OK, "held by the supervisor")
	stop()
	h.finds("instance lock", OK, "free")
}

// TestRunningEnvironment: what the running server was started without is told, by name.
func TestRunningEnvironment(t *testing.T) {
	t.Parallel()
	self, err := platform.ProcessEnvironment(os.Getpid())
	if err != nil {
		t.Skip(err)
	}
	at := strings.Index(self[0], "=")
	had := supervisor.Variable{Name: self[0][:at], Value: self[0][at+1:], Origin: supervisor.FromProcess}
	p := &patient{status: func() (control.Status, error) {
		return control.Status{Server: control.ServerStatus{State: "running", PID: os.Getpid()}}, nil
	}}
	var env []supervisor.Variable
	p.environment = func() supervisor.ServerEnvironment { return supervisor.ServerEnvironment{Variables: env} }
	env = []supervisor.Variable{{Name: "HTTPS_PROXY", Value: "http://u:" + plantedProxy + "@p:1", Origin: supervisor.FromConfig}}
	c := p.checkProxies(t.Context())
	if c.State != Warning || !strings.Contains(c.Detail, "HTTPS_PROXY (from config.toml)") || !strings.HasPrefix(c.Act, "intermission restart") || strings.Contains(fmt.Sprint(c), plantedProxy) {
		t.Errorf("%+v", c)
	}
	env = []supervisor.Variable{{Name: "PATH", Value: "/not/what/it/has", Origin: supervisor.FromLoginShell}}
	if c := p.checkPath(t.Context()); c.State != Warning || !strings.Contains(c.Detail, "PATH (from the login shell)") {
		t.Errorf("%+v", c)
	}
	env[0].Value = os.Getenv("PATH")
	if c := p.checkPath(t.Context()); c.State != OK {
		t.Errorf("%+v", c)
	}
	if _, other := p.checkRunning(supervisor.ServerEnvironment{}, []supervisor.Variable{had}); other {
		t.Errorf("%s is missed, and it has it", had.Name)
	}
}

// TestConfiguredGeneration: a generation that the program isn't of is the likely cause.
func TestConfiguredGeneration(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	oc := h.script("oc", "echo 2.2.0")
	h.write("config.toml", fmt.Sprintf("[server]\ncommand = [%q]\ngeneration = \"v1\"\n", oc))
	path := filepath.Join(h.dir, ".local/share/opencode/opencode.db")
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	h.env["OPENCODE_DB"] = path
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec("CREATE TABLE other(id TEXT)")
	must(t, err)
	must(t, db.Close())
	h.finds("database", Failed, "generation v1", "2.2.0", "take generation out of [server]")
}

// TestRegistrationThatIsAFIFO isn't waited for.
func TestRegistrationThatIsAFIFO(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := filepath.Join(h.dir, ".local/state/opencode")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, makeFIFO(filepath.Join(dir, "service-x.json")))
	h.finds("other servers", OK)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err error
		act string
	}{
		{syscall.EROFS, "writable"},
		{syscall.ENOSPC, "make room on the disk of /d"},
		{syscall.EIO, "sound"},
		{syscall.EACCES, "chmod 700 /d"},
	} {
		c := refused("chmod 700 /d", "/d", &os.PathError{Op: "open", Path: "/d", Err: test.err})
		if !strings.Contains(c.Act, test.act) || strings.Contains(c.Act, "chmod") != (test.err == syscall.EACCES) {
			t.Errorf("%+v", c)
		}
	}
}

// TestActsAndReasonsAreShort: an act is one, and only the check of a subject tells all of it.
func TestActsAndReasonsAreShort(t *testing.T) {
	t.Parallel()
	long := "cannot find the program; looked in " + strings.Repeat("/some/directory, ", 40) + "; → then: intermission start"
	p := &patient{status: func() (control.Status, error) {
		return control.Status{Server: control.ServerStatus{State: "failed", Reason: long}}, nil
	}}
	if c := p.checkServer(t.Context()); c.Act != "intermission start" || strings.Contains(c.Detail, "/some/directory") {
		t.Errorf("%+v", c)
	}
	if got := sessions(1) + ", " + sessions(2); got != "1 session, 2 sessions" {
		t.Error(got)
	}
}
