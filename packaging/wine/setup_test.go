//go:build linux

package wine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSetupEndsTraysAlone: an upgrade puts a new tray in place of the one that runs. A
// supervisor, which has a window too, goes on with its server.
func TestSetupEndsTraysAlone(t *testing.T) {
	i := install(t)
	if _, err := exec.LookPath("makensis"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("makensis is missing (package nsis)")
		}
		t.Skip("makensis is missing (package nsis)")
	}
	out := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "run", "./packaging/release", "-out", out, "-version", "0.9.0", "setup")
	build.Dir = filepath.Join("..", "..")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	setup := func() {
		t.Helper()
		if said, err := Output(i.Command(t.Context(), filepath.Join(out, "intermission-0.9.0-windows-amd64-setup.exe"), "/S")); err != nil {
			t.Fatalf("the installer: %v\n%s", err, said)
		}
	}
	setup()
	program := filepath.Join(i.home, "AppData", "Local", "Programs", "Intermission", "intermission.exe")
	ctx, end := context.WithCancel(context.Background())
	supervisor := i.Command(ctx, program, "run")
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = i.run(t, "stop")
		end()
		_ = supervisor.Wait()
		if err := os.RemoveAll(filepath.Join(i.home, "AppData", "Local", "intermission")); err != nil {
			t.Error(err)
		}
	})
	i.serving(t)
	before := i.supervisor(t)

	tray := i.Command(ctx, program, "tray")
	if err := tray.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tray.Wait() }()
	eventually(t, "a tray", func() error {
		dir := filepath.Join(i.home, "AppData", "Local", "intermission")
		found := errors.New("it has no lock")
		err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && strings.HasPrefix(e.Name(), "tray-") && strings.HasSuffix(e.Name(), ".lock") {
				found = nil
			}
			return nil
		})
		return errors.Join(err, found)
	})
	first := i.trays(t)
	setup()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the tray ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the tray goes on")
	}
	eventually(t, "the new tray", func() error {
		if now := i.trays(t); len(now) != 1 || slices.Equal(now, first) {
			return fmt.Errorf("trays were %v, and are %v", first, now)
		}
		return nil
	})
	if after := i.supervisor(t); after != before {
		t.Errorf("the supervisor was process %d, and is %d", before, after)
	}
	if said, err := Output(i.Command(t.Context(), "taskkill", "/IM", "intermission.exe")); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	if after := i.supervisor(t); after != before {
		t.Errorf("who asks all windows to close has ended the supervisor: %d, %d", before, after)
	}
}

// supervisor is the process of the supervisor that answers.
func (i installed) supervisor(t *testing.T) int {
	t.Helper()
	var st struct{ Supervisor struct{ PID int } }
	if err := json.Unmarshal([]byte(i.must(t, "status", "--json")), &st); err != nil || st.Supervisor.PID == 0 {
		t.Fatalf("no supervisor: %v", err)
	}
	return st.Supervisor.PID
}

// trays are the processes, of here, of the trays that run on this Windows.
func (i installed) trays(t *testing.T) (pids []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		line, _ := os.ReadFile(path) // who has ended has none
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		words := strings.Fields(strings.ReplaceAll(string(line), "\x00", " "))
		if len(words) > 1 && words[len(words)-1] == "tray" && strings.Contains(string(line), "intermission.exe") && strings.Contains(string(env), "WINEPREFIX="+i.prefix()+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}
