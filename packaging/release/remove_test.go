package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// standIn is what a removal meets: it says when it was told to end, and ends when its
// input does, as a supervisor does once its server has.
func standIn() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	left := make(chan struct{})
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(left)
	}()
	select {
	case <-told:
		fmt.Println("told")
		<-left
	case <-left:
		fmt.Println("let go")
	}
	os.Exit(0)
}

// process is a stand-in that runs.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startStandIn(t *testing.T, program, as string) process {
	t.Helper()
	p := process{Cmd: exec.Command(program, "stands-in", as)}
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	p.out = bufio.NewScanner(out)
	p.says(t, "ready")
	return p
}

// says waits for its next line.
func (p process) says(t *testing.T, want string) {
	t.Helper()
	if !p.out.Scan() || p.out.Text() != want {
		t.Fatalf("it said %q (%v), want %q", p.out.Text(), p.out.Err(), want)
	}
}

// A removal tells the supervisors of this program alone, and waits for their end.
func TestPackagesRemoval(t *testing.T) {
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("no /proc here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(checkout(t), "packaging/linux/remove.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, other := filepath.Join(dir, "intermission"), filepath.Join(dir, "other")
	for path, data := range map[string]string{
		program: string(binary), other: string(binary),
		filepath.Join(dir, "remove.sh"): strings.Replace(string(script), "program=/usr/bin/intermission", "program="+program, 1),
	} {
		if err := write(path, []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	supervisor, tray := startStandIn(t, program, "run"), startStandIn(t, program, "tray")
	status, foreign := startStandIn(t, program, "status"), startStandIn(t, other, "run")

	for _, why := range [][]string{{"upgrade", "1.2.4"}, {"1"}, {"deconfigure"}, {"failed-upgrade"}} {
		output(t, exec.Command(filepath.Join(dir, "remove.sh"), why...))
	}
	removal := exec.Command(filepath.Join(dir, "remove.sh"), "remove")
	ended := make(chan error, 1)
	var said []byte
	go func() {
		var err error
		said, err = removal.Output()
		ended <- err
	}()
	supervisor.says(t, "told")
	tray.says(t, "told")
	select {
	case err := <-ended:
		t.Fatalf("the removal went on (%v) before the supervisor had ended", err)
	case <-time.After(500 * time.Millisecond): // ten times what it takes without waiting
	}
	_ = supervisor.in.Close()
	if err := supervisor.Wait(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// It can't be undone by what is gone: no command of ours is advised.
	if text := string(said); !strings.Contains(text, "They have ended.") || !strings.Contains(text, ": systemctl --user disable intermission\n") ||
		strings.Contains(text, "intermission service") {
		t.Errorf("it said:\n%s", text)
	}
	for _, p := range []process{status, foreign} {
		_ = p.in.Close()
		p.says(t, "let go")
	}
}

// Where a supervisor died, the removal waits for the next, and tells that one too; what it
// leaves without one it names. A service in a container isn't ours.
func TestPackagesRemovalWithoutSupervisor(t *testing.T) {
	for name, comes := range map[string]bool{"the next comes": true, "none comes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			program, proc := filepath.Join(dir, "intermission"), filepath.Join(dir, "proc")
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			binary, err := os.ReadFile(self)
			if err != nil {
				t.Fatal(err)
			}
			script, err := os.ReadFile(filepath.Join(checkout(t), "packaging/linux/remove.sh"))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("program=/usr/bin/intermission", "program="+program, "/proc/", proc+"/").Replace(string(script))
			for path, data := range map[string]string{program: string(binary), filepath.Join(dir, "remove.sh"): text} {
				if err := write(path, []byte(data), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			// shown puts p where the script looks, as what a unit holds.
			shown := func(p process, root string) string {
				entry := filepath.Join(dir, fmt.Sprint("new", p.Process.Pid))
				if err := write(filepath.Join(entry, "cgroup"), []byte("0::/user.slice/app.slice/intermission.service\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				real := fmt.Sprintf("/proc/%d/", p.Process.Pid)
				for link, to := range map[string]string{"exe": real + "exe", "cmdline": real + "cmdline", "root": root} {
					if err := os.Symlink(to, filepath.Join(entry, link)); err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(proc, fmt.Sprint(p.Process.Pid))
				if err := os.Rename(entry, path); err != nil {
					t.Fatal(err)
				}
				return path
			}
			if err := os.Mkdir(proc, 0o755); err != nil {
				t.Fatal(err)
			}
			server, contained := startStandIn(t, program, "serve"), startStandIn(t, program, "serve")
			held := shown(server, "/")
			shown(contained, dir)

			removal := exec.Command(filepath.Join(dir, "remove.sh"), "remove")
			out, err := removal.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := removal.Start(); err != nil {
				t.Fatal(err)
			}
			if comes {
				next := startStandIn(t, program, "run")
				// Who is never told would be waited for without an end.
				defer time.AfterFunc(30*time.Second, func() { _ = next.Process.Kill() }).Stop()
				entry := shown(next, "/")
				next.says(t, "told")
				// It stops its server, and ends.
				for _, gone := range []string{held, entry} {
					if err := os.RemoveAll(gone); err != nil {
						t.Fatal(err)
					}
				}
			}
			said, err := io.ReadAll(out)
			if err := errors.Join(err, removal.Wait()); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("without a supervisor: %d. ", server.Process.Pid)
			if comes {
				want = "They have ended."
			}
			if !strings.Contains(string(said), want) || comes == strings.Contains(string(said), "without a supervisor") {
				t.Errorf("it said:\n%s", said)
			}
			for _, p := range []process{server, contained} {
				_ = p.in.Close()
				p.says(t, "let go")
			}
		})
	}
}
