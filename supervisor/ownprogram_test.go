package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/platform"
	"intermission/supervisor/control"
)

// ourProgram puts an intermission in place that tells this version.
func ourProgram(t *testing.T, at, version string) {
	t.Helper()
	if err := writeProgram(at+".new", []byte("#!/bin/sh\necho '"+version+"'\n")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
}

func TestOurOwnProgramIsReplaced(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{true, false} {
		t.Run(fmt.Sprint(restarts), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			k := &keeper{restarts: restarts}
			b.o.Manager, b.o.Program, b.o.Policy = k, filepath.Join(b.dir, "intermission"), DefaultPolicy
			b.o.Policy.Settle = 50 * time.Millisecond
			ourProgram(t, b.o.Program, `{"version":"1.0"}`)
			b.start()
			first := b.phase(Running)
			for _, broken := range []string{"not a version", `{"version":""}`} {
				ourProgram(t, b.o.Program, broken)
			}
			if st := b.phase(Running); st.Supervisor.Available != "" {
				t.Errorf("what is broken is offered: %+v", st.Supervisor)
			}
			ourProgram(t, b.o.Program, `{"version":"1.1"}`)
			if !restarts {
				b.status("it is shown", func(st control.Status) bool { return st.Supervisor.Available == "1.1" })
				return
			}
			b.handedOver()
			b.start()
			if st := b.phase(Running); st.Server.PID != first.Server.PID || st.Supervisor.Available != "" {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A configuration with which the next supervisor would not start holds its upgrade
// back, which is shown; once it is mended the upgrade goes on by itself.
func TestOurUpgradeWaitsForTheConfiguration(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.o.Manager, b.o.Program, b.o.Policy = &keeper{restarts: true}, filepath.Join(b.dir, "intermission"), DefaultPolicy
	b.o.Policy.Settle = 50 * time.Millisecond
	ourProgram(t, b.o.Program, `{"version":"1.0"}`)
	b.start()
	b.phase(Running)
	configure := func(text string) {
		t.Helper()
		if err := platform.EnsurePrivateDir(filepath.Dir(b.o.Paths.ConfigFile)); err != nil {
			t.Fatal(err)
		}
		if err := platform.WriteFileAtomic(b.o.Paths.ConfigFile, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	configure("[server\n")
	ourProgram(t, b.o.Program, `{"version":"1.1"}`)
	b.status("what it waits for is shown", func(st control.Status) bool {
		return st.Supervisor.Available == "1.1" && strings.Contains(st.Supervisor.Waits, b.o.Paths.ConfigFile)
	})
	configure("[server]\nport = \"x\"\n") // another fault
	configure("")
	b.handedOver()
	b.start()
	if st := b.phase(Running); !st.Server.Adopted || st.Supervisor.Waits != "" {
		t.Errorf("%+v", st)
	}
}

// An upgrade waits too while we keep a lock for what can't be parked, and that is shown.
func TestOurUpgradeWaitsForAPark(t *testing.T) {
	t.Parallel()
	s := &supervisor{newer: "1.1", state: State{Phase: Blocked}}
	var st control.Status
	s.shown(&st)
	if st.Supervisor.Available != "1.1" || st.Supervisor.Waits != "" {
		t.Errorf("with nothing kept: %+v", st.Supervisor)
	}
	s.held = &platform.ServerLock{}
	s.shown(&st)
	if !strings.Contains(st.Supervisor.Waits, "can't be parked") {
		t.Errorf("with a lock kept: %+v", st.Supervisor)
	}
	s.newer = ""
	s.shown(&st)
	if st.Supervisor.Waits != "" {
		t.Errorf("without an upgrade: %+v", st.Supervisor)
	}
}

func TestAskVersionIsBounded(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "intermission")
	for script, want := range map[string]string{
		"echo '{\"version\":\"1.2\"}'": "1.2", "exit 3": "status 3", "sleep 60 & exec sleep 60": "does not tell", "while :; do echo word; done": "does not tell", "true": "instead of its version",
	} {
		if err := writeProgram(at, []byte("#!/bin/sh\n"+script+"\n")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		version, err := askVersion(ctx, at)
		cancel()
		if version != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v", script, version, err)
		}
	}
}
