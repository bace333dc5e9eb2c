package doctor

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// script makes a program of a shell script.
func (h *home) script(name, text string) string {
	h.t.Helper()
	if runtime.GOOS == "windows" {
		h.t.Skip("a shell script")
	}
	path := h.write(name, "#!/bin/sh\n"+text+"\n")
	must(h.t, os.Chmod(path, 0o700))
	return path
}

func TestProgram(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	named := h.script("named/oc", "echo 1.18.33")
	h.write("config.toml", fmt.Sprintf("[server]\ncommand = [%q]\n", named))
	h.finds("program", OK, named, "named in "+h.paths.ConfigFile)
	h.finds("version", OK, "1.18.33", "v1")

	h.script("named/oc", "echo 7.0.0")
	h.finds("program", OK, "runs")
	h.finds("version", Failed, "7.0.0", "update intermission")
	h.script("named/oc", "exit 3")
	h.finds("program", Failed, "status 3")
	h.finds("version", Skipped)
	h.finds("database", Skipped)
	must(t, os.Chmod(named, 0o600))
	h.finds("program", Failed, "is not executable")

	h.write("config.toml", "[server]\ncommand = [\"oc\"]\n")
	h.env["PATH"] = filepath.Join(h.dir, "nothing")
	h.finds("program", Failed, `"oc" isn't found`, filepath.Join(h.dir, "nothing"), "install OpenCode")
	h.script("bin/oc", "echo 2.2.0")
	h.env["PATH"] = filepath.Join(h.dir, "bin")
	h.finds("program", OK, "on the PATH")
	h.env["PATH"] = filepath.Join(h.dir, "nothing")
	h.script(".opencode/bin/oc", "echo 2.2.0")
	h.finds("program", OK, "in a well-known place")
	h.write("config.toml", "[server]\ncommand = [\"oc\"]\ngeneration = \"v2\"\n")
	h.script(".opencode/bin/oc", "exit 1")
	h.finds("version", Warning, "take generation out")
}

// TestProgramOfTheLoginShell isn't parallel: the login shell is that of the process.
func TestProgramOfTheLoginShell(t *testing.T) {
	h := newHome(t)
	h.script("login/oc", "echo 2.2.0")
	t.Setenv("SHELL", h.script("shell", "PATH="+filepath.Join(h.dir, "login")+":/usr/bin:/bin; export PATH; for last; do :; done; eval \"$last\""))
	h.write("config.toml", "[server]\ncommand = [\"oc\"]\n")
	h.env["PATH"] = filepath.Join(h.dir, "nothing")
	h.finds("program", OK, "on the login shell's PATH")
}

func TestServerVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		runs, program string
		state         State
		word          string
	}{
		{"2.2.0", "2.2.0", OK, "program's version"},
		{"2.1.9", "2.2.0", Warning, "older than"},
		{"2.10.0", "2.9.0", Warning, "newer than"},
		{"0.0.0-a-1", "0.0.0-b-2", Warning, "intermission restart"},
		{"2.1.0", "", Skipped, "not known"},
	} {
		p := &patient{
			status: func() (control.Status, error) {
				return control.Status{Server: control.ServerStatus{State: "running", Version: test.runs}}, nil
			},
			program: func() program { return program{Install: &opencode.Install{Version: test.program}} },
		}
		if c := p.checkServerVersion(t.Context()); c.State != test.state || !strings.Contains(c.Detail+c.Act, test.word) {
			t.Errorf("%s beside %s: %+v", test.runs, test.program, c)
		}
	}
}

// startServer starts a dev server that nobody supervises.
func (h *home) startServer() *exec.Cmd {
	h.t.Helper()
	self, err := os.Executable()
	must(h.t, err)
	cmd := exec.Command(self, "serve", "--service")
	cmd.Env = append(h.process(), asServer+"=1")
	must(h.t, cmd.Start())
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	registration := filepath.Join(h.dir, ".local/state/opencode/service.json")
	h.until("the server has registered", func() bool {
		var r serverRecord
		return readJSON(registration, &r) == nil && r.PID == cmd.Process.Pid
	})
	return cmd
}

// TestServerThatNobodySupervises holds the lock, and is registered.
func TestServerThatNobodySupervises(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cmd := h.startServer()
	pid := fmt.Sprintf("pid %d", cmd.Process.Pid)
	h.until("it is healthy", func() bool { return h.check("other servers").State == Warning })
	h.finds("other servers", Warning, pid, "no supervisor", "intermission run")
	h.finds("server lock", Warning, pid, "no supervisor")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	h.finds("other servers", OK)
	h.finds("server lock", OK, "free")
}

// TestServerBesideTheManagedOne is another than the one that the supervisor tells of.
func TestServerBesideTheManagedOne(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	cmd := h.startServer()
	h.o.Process = h.process()
	p := newPatient(t.Context(), h.o)
	p.status = func() (control.Status, error) {
		return control.Status{Server: control.ServerStatus{State: "running", Generation: "v2", PID: 1 << 30}}, nil
	}
	h.until("it is healthy", func() bool {
		c := p.checkOtherServers(t.Context())
		return c.State == Failed && strings.Contains(c.Detail+c.Act, "is registered on the same data directory, and is not the managed server") &&
			strings.Contains(c.Act, fmt.Sprintf("kill %d", cmd.Process.Pid))
	})
	if c := p.checkServerLock(t.Context()); c.State != Failed || !strings.Contains(c.Detail, "not the managed server") {
		t.Errorf("%+v", c)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	if c := p.checkServerLock(t.Context()); c.State != Failed || c.Act != "intermission restart" {
		t.Errorf("a managed server without its lock: %+v", c)
	}
}

// TestServerLock: held by others, at states of the supervisor.
func TestServerLock(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.o.Process = h.process()
	p := newPatient(t.Context(), h.o)
	path := p.program().LockPath()
	if c := p.checkServerLock(t.Context()); c.State != OK || c.Detail != "free" {
		t.Errorf("%+v", c)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the look made the lock file")
	}
	lock, err := platform.TryServerLock(path)
	must(t, err)
	defer lock.Unlock() //nolint:errcheck // the process ends
	for state, want := range map[string]State{"blocked": Warning, "starting": OK} {
		p.status = func() (control.Status, error) {
			return control.Status{Supervisor: control.SupervisorStatus{PID: os.Getpid()}, Server: control.ServerStatus{State: state}}, nil
		}
		if c := p.checkServerLock(t.Context()); c.State != want {
			t.Errorf("held by the supervisor, %s: %+v", state, c)
		}
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("database", OK, "isn't there yet")
	path := filepath.Join(h.dir, ".local/share/opencode/opencode.db")
	h.write(".local/share/opencode/opencode.db", "this is no database, whatever it is called, and long enough to have a header of a hundred bytes or so")
	h.finds("database", Failed, path, "not a database")
	must(t, os.Remove(path))
	db, err := sql.Open("sqlite", path)
	must(t, err)
	_, err = db.Exec("CREATE TABLE session(id TEXT)")
	must(t, err)
	must(t, db.Close())
	before := h.listing()
	h.finds("database", Failed, path, "doesn't know", "update intermission")
	if after := h.listing(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("there were\n%q\nand now are\n%q", before, after)
	}
	must(t, os.Remove(path))
	must(t, os.Mkdir(path, 0o700))
	h.finds("database", Failed, "regular file")
	h.env["OPENCODE_DB"] = ":memory:"
	h.finds("database", Failed, "unset OPENCODE_DB")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.finds("ledger", OK, "isn't there yet")
	must(t, os.MkdirAll(h.paths.State, 0o700))
	ledger, err := restart.Open(h.paths.Ledger, time.Now)
	must(t, err)
	suspend(t, ledger, time.Now())
	h.finds("ledger", OK, "1 wait") // while it is in use
	must(t, ledger.Close())
	before := h.listing()
	h.finds("ledger", OK, "1 wait")
	if after := h.listing(); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("there were\n%q\nand now are\n%q", before, after)
	}
	must(t, os.Chmod(h.paths.Ledger, 0o644))
	h.finds("ledger", Warning, "0644", "chmod 600 "+h.paths.Ledger)
	must(t, os.Chmod(h.paths.Ledger, 0o600))

	db, err := sql.Open("sqlite", h.paths.Ledger)
	must(t, err)
	_, err = db.Exec("PRAGMA user_version = 1000")
	must(t, err)
	h.finds("ledger", Failed, h.paths.Ledger, "1000", "install the newer program again")
	_, err = db.Exec("PRAGMA application_id = 7")
	must(t, err)
	must(t, db.Close())
	h.finds("ledger", Failed, "another program", "INTERMISSION_STATE_DIR")
	must(t, os.WriteFile(h.paths.Ledger, []byte(strings.Repeat("no database ", 100)), 0o600))
	h.finds("ledger", Failed, "damaged", "put back a copy", "keep it")
	must(t, os.Remove(h.paths.Ledger))
	must(t, makeFIFO(h.paths.Ledger))
	h.finds("ledger", Failed, "regular file", "move it away")
}

func TestRoom(t *testing.T) {
	t.Parallel()
	for free, want := range map[uint64]State{1 << 20: Failed, 100 << 20: Warning, 10 << 30: OK} {
		if c := judgeRoom(free, "/d"); c.State != want || !strings.Contains(c.Detail, humanize.Bytes(free)) {
			t.Errorf("%d: %+v", free, c)
		}
	}
	h := newHome(t)
	h.finds("disk", OK)
}
