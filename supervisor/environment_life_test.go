package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"intermission/platform"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// As a service manager starts it: a small PATH, and a user whose program and its
// interpreter are where a version manager has put them.
func TestServiceFindsTheProgramByTheLoginShell(t *testing.T) {
	t.Parallel()
	b := newBed(t, map[string]string{"OVERRIDDEN": "by config"})
	self := b.o.Config.Server.Command[0]
	b.o.Config.Server.Command = nil
	tools, versions := filepath.Join(b.dir, "tools"), filepath.Join(b.dir, "node", "v20")
	for name, text := range map[string]string{
		filepath.Join(tools, "opencode"):      "#!/usr/bin/env my-node\n",
		filepath.Join(versions, "my-node"):    "#!/bin/sh\nshift\n[ \"$1\" != serve ] || env >" + b.dir + "/env\nexec " + self + " \"$@\"\n",
		filepath.Join(b.dir, ".profile"):      "echo noise\nPATH=" + tools + ":" + versions + ":$PATH\nexport FROM_PROFILE='it works' OVERRIDDEN=no XDG_DATA_HOME=" + b.dir + "/data\n",
		filepath.Join(b.dir, "data", "empty"): "",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), writeProgram(name, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	b.o.Environ = []string{"HOME=" + b.dir, "PATH=/usr/bin:/bin", "SHELL=/bin/sh", "NOTIFY_SOCKET=/run/none"}
	b.o.LoginEnvironment = true
	b.start()
	st := b.phase(Running)
	if st.Server.Generation != "v2" {
		t.Errorf("%+v", st.Server)
	}
	got, err := os.ReadFile(filepath.Join(b.dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	env := "\n" + string(got)
	for _, want := range []string{"FROM_PROFILE=it works", "OVERRIDDEN=by config", "PATH=" + tools + ":" + versions + ":"} {
		if !strings.Contains(env, "\n"+want) {
			t.Errorf("the server lacks %s:%s", want, env)
		}
	}
	for _, unwanted := range []string{"NOTIFY_SOCKET", platform.LoginAsking} {
		if strings.Contains(env, "\n"+unwanted+"=") {
			t.Errorf("the server has %s", unwanted)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "data", "opencode", "opencode.db")); err != nil {
		t.Errorf("the database isn't where the user's terminal has it: %v", err)
	}
	if info, err := os.Stat(environmentMemoryFile(b.o.Paths.State)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// saying is a login shell that says what it is told to, and counts how often it is asked.
type saying struct {
	asked atomic.Int32
	mu    sync.Mutex
	says  []string
	fault error
}

func (s *saying) ask(_ context.Context, given []string) ([]string, error) {
	s.asked.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(given, s.says...), s.fault
}

func (s *saying) set(fault error, says ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says, s.fault = says, fault
}

// database waits until the server's database is in the data directory.
func (b *bed) database(data string) {
	b.t.Helper()
	b.phase(Running)
	if _, err := os.Stat(filepath.Join(b.dir, data, "opencode", "opencode.db")); err != nil {
		b.t.Errorf("the database isn't in %s: %v", data, err)
	}
}

func TestTheShellIsAskedWhenAPersonWantsAStart(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	shell := &saying{says: []string{"XDG_DATA_HOME=" + b.dir + "/a"}}
	b.o.LoginEnvironment, b.o.askLogin = true, shell.ask
	b.start()
	b.database("a")
	first := b.phase(Running)
	signal(t, first.Server.PID, platform.Kill)
	var st control.Status
	b.until("another incarnation", func() bool {
		st, _ = b.client.Status(t.Context())
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	}, func() any { return st.Server })
	if n := shell.asked.Load(); n != 1 {
		t.Errorf("after a crash it was asked %d times", n)
	}
	if _, err := b.client.StartServer(t.Context()); err != nil || shell.asked.Load() != 1 {
		t.Errorf("asked %d times, for a server that runs; %v", shell.asked.Load(), err)
	}
	// A restart asks; the server's files aren't moved under a supervisor that has them open.
	shell.set(nil, "XDG_DATA_HOME="+b.dir+"/b", "NEWS=1")
	if _, err := b.client.RestartServer(t.Context()); err != nil || shell.asked.Load() != 2 {
		t.Errorf("asked %d times; %v", shell.asked.Load(), err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "b")); err == nil {
		t.Error("the database was moved")
	}
	if m := recallEnvironment(b.o.Paths.State); !strings.Contains(fmt.Sprint(m.Login), "NEWS=1") || m.Places["XDG_DATA_HOME"] != b.dir+"/a" {
		t.Errorf("remembered: %+v", m)
	}
	b.stop()
	b.start()
	b.database("b")
}

// With a server recorded that may live, or whose end was not seen, its files are where
// they were, whatever the shell says now.
func TestFilesStayWhileAServerIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	shell := &saying{says: []string{"XDG_DATA_HOME=" + b.dir + "/b"}}
	b.o.LoginEnvironment, b.o.askLogin = true, shell.ask
	if err := os.MkdirAll(b.o.Paths.State, 0o700); err != nil {
		t.Fatal(err)
	}
	memory := environmentMemory{Places: map[string]string{"HOME": b.dir, "XDG_DATA_HOME": b.dir + "/a"}}
	dead := record{Incarnation: opencode.Incarnation{ID: "dead", Generation: opencode.V2}, Ready: true}
	if err := errors.Join(memory.save(b.o.Paths.State), dead.save(b.o.Paths.ServerRecord)); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.database("a")
}

func TestAFailingShellIsSaidAndWhatItSaidBeforeCounts(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	shell := &saying{says: []string{"XDG_DATA_HOME=" + b.dir + "/a"}}
	b.o.LoginEnvironment, b.o.askLogin = true, shell.ask
	b.start()
	b.database("a")
	b.stop()
	if err := os.RemoveAll(filepath.Join(b.dir, "a")); err != nil {
		t.Fatal(err)
	}
	shell.set(errors.New("its start-up files hang"))
	var log bytes.Buffer
	b.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.start()
	b.database("a")
	if _, err := b.client.RestartServer(t.Context()); err != nil {
		t.Error(err)
	}
	b.stop()
	if n := strings.Count(log.String(), "its start-up files hang"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, &log)
	}
}

// What a shell says without its login files is used, said, and not kept as its answer.
func TestAnAnswerWithoutLoginFilesIsNotKept(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	shell := &saying{says: []string{"XDG_DATA_HOME=" + b.dir + "/a"}, fault: platform.ErrLoginFiles}
	b.o.LoginEnvironment, b.o.askLogin = true, shell.ask
	var log bytes.Buffer
	b.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.start()
	b.database("a")
	b.stop()
	if !strings.Contains(log.String(), "its answer without login files") {
		t.Errorf("it is not said:\n%s", &log)
	}
	if m := recallEnvironment(b.o.Paths.State); m.LoginAt != 0 || m.Login != nil {
		t.Errorf("kept: %+v", m)
	}
}
