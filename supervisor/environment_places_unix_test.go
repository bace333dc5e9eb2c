//go:build unix

package supervisor

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// What is remembered of the environment is lost, and the start-up files name other
// directories by now: the living server is in those of before.
func TestALivingServerIsFoundWhereItsRecordSays(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, b *bed){
		"recorded": func(*testing.T, *bed) {},
		"a record of before": func(t *testing.T, b *bed) {
			if runtime.GOOS != "linux" {
				t.Skip("the system doesn't tell the environment of a process")
			}
			b.forgetPlaces(t)
		},
		"nothing is lost but the record's places": func(t *testing.T, b *bed) {
			b.forgetPlaces(t)
			memory := environmentMemory{Places: map[string]string{"HOME": b.dir, "XDG_DATA_HOME": b.dir + "/a", "XDG_STATE_HOME": b.dir + "/a"}}
			if err := memory.save(b.o.Paths.State); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			shell := &saying{says: []string{"XDG_DATA_HOME=" + b.dir + "/a", "XDG_STATE_HOME=" + b.dir + "/a"}}
			b.o.LoginEnvironment, b.o.askLogin = true, shell.ask
			b.start()
			b.database("a")
			before := b.phase(Running)
			id := b.prompt("[[slow n=120 ms=50]]")
			b.atWork(id)
			if _, err := b.client.HandOver(t.Context()); err != nil { // it ends as if it were killed
				t.Fatal(err)
			}
			b.handedOver()
			if err := os.Remove(environmentMemoryFile(b.o.Paths.State)); err != nil {
				t.Fatal(err)
			}
			lose(t, b)
			shell.set(nil, "XDG_DATA_HOME="+b.dir+"/b", "XDG_STATE_HOME="+b.dir+"/b")
			b.start()
			after := b.phase(Running)
			if !after.Server.Adopted || after.Server.PID != before.Server.PID || after.Server.Incarnation != before.Server.Incarnation {
				t.Errorf("%+v", after.Server)
			}
			b.atWork(id)
			if p, err := b.client.Pending(t.Context()); err != nil || len(p.Pending) > 0 {
				t.Errorf("pending: %+v, %v", p, err)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "b")); err == nil {
				t.Error("its files were looked for elsewhere")
			}
			if r, _ := loadRecord(b.o.Paths.ServerRecord); r.Places["XDG_DATA_HOME"] != b.dir+"/a" {
				t.Errorf("recorded: %v", r.Places)
			}
		})
	}
}

// forgetPlaces makes the record one of before, which did not tell them.
func (b *bed) forgetPlaces(t *testing.T) {
	t.Helper()
	r, ok := loadRecord(b.o.Paths.ServerRecord)
	if !ok || r.Places == nil {
		t.Fatalf("recorded: %+v", r)
	}
	r.Places = nil
	if err := r.save(b.o.Paths.ServerRecord); err != nil {
		t.Fatal(err)
	}
}

// bystander starts a process that does nothing and can't be asked for its environment,
// as if it were a server, and records it.
func (b *bed) bystander(places map[string]string) platform.Identity {
	b.t.Helper()
	child, err := platform.Start(platform.Spec{Argv: []string{"/bin/sleep", "300"}, Env: []string{}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = child.Identity().Signal(platform.Kill)
		child.Wait()
	})
	r := record{Incarnation: opencode.Incarnation{ID: "elsewhere", Generation: opencode.V2, Version: "2.2.0", PID: child.Identity().PID}, Identity: child.Identity(), Ready: true, Places: places}
	if err := errors.Join(os.MkdirAll(b.o.Paths.State, 0o700), r.save(b.o.Paths.ServerRecord)); err != nil {
		b.t.Fatal(err)
	}
	return child.Identity()
}

func TestALivingServerWhosePlacesAreNotKnownIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	id := b.bystander(nil)
	b.start()
	st := b.phase(Blocked)
	if !strings.Contains(st.Server.Reason, "where its files are isn't known any more; put HOME") {
		t.Errorf("the reason: %s", st.Server.Reason)
	}
	if _, err := os.Stat(filepath.Dir(b.databasePath())); err == nil {
		t.Error("something was opened where its files may not be")
	}
	// Nor is the guess of this time taken for knowledge at the next.
	if _, err := b.client.StartServer(t.Context()); err == nil {
		t.Error("it was started")
	}
	if st := b.phase(Blocked); !strings.Contains(st.Server.Reason, "isn't known") {
		t.Errorf("the reason: %s", st.Server.Reason)
	}
	b.stop()
	if !id.Alive() {
		t.Error("it was ended")
	}
}

// What was removed is a server's registration, not its place: it is ended, and parked.
func TestAnUnregisteredServerOfTheSamePlacesIsEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	id := b.bystander(map[string]string{"HOME": b.dir})
	b.start()
	b.phase(Running)
	if id.Alive() {
		t.Error("it lives")
	}
}

func TestAServerOfOtherPlacesIsNotEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	id := b.bystander(map[string]string{"HOME": b.dir + "/other"})
	r, _ := loadRecord(b.o.Paths.ServerRecord)
	s := &supervisor{Options: b.o, life: t.Context()}
	if err := s.endRecorded(r); err == nil || !strings.Contains(err.Error(), "intermission service restart") || !id.Alive() {
		t.Errorf("it lives: %v; %v", id.Alive(), err)
	}
}

func TestPlacesOfAProcess(t *testing.T) {
	t.Parallel()
	self, err := platform.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		env  []string
		err  error
		want string
	}{
		{[]string{"HOME=/h", "XDG_DATA_HOME=", "OTHER=1"}, nil, `{"HOME":"/h","XDG_DATA_HOME":""}`},
		{[]string{"opencode: serving"}, nil, "null"}, // its title
		{nil, errors.New("not here"), "null"},
	} {
		asked := func(int) ([]string, error) { return tt.env, tt.err }
		got, err := json.Marshal(placesOf(record{Identity: self}, environmentMemory{}, asked))
		if err != nil || string(got) != tt.want {
			t.Errorf("%q: %s, %v", tt.env, got, err)
		}
	}
	gone := self
	gone.Start += "0" // another has its number
	if got := placesOf(record{Identity: gone}, environmentMemory{}, platform.ProcessEnvironment); got != nil {
		t.Errorf("of another process: %v", got)
	}
}

// hostile are what may lie in the place of a small file of ours.
var hostile = map[string]func(path string) error{
	"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
	"directory": func(path string) error { return os.Mkdir(path, 0o700) },
	"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
	"huge": func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
	},
}

func TestNoFileOfOursIsWaitedFor(t *testing.T) {
	t.Parallel()
	for kind, lay := range hostile {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			paths := platform.Paths{State: dir, ServerRecord: filepath.Join(dir, "server.json"), ConfigFile: filepath.Join(dir, "config.toml")}
			for path, read := range map[string]func() bool{ // says that it was told
				environmentMemoryFile(dir): func() bool { return recallEnvironment(dir).Process == nil },
				keptFile(paths):            func() bool { _, err := loadKept(keptFile(paths)); return err != nil },
				programFile(dir):           func() bool { return loadProgram(dir, nil) == nil },
				paths.ServerRecord:         func() bool { _, ok := loadRecord(paths.ServerRecord); return !ok },
				wishFile(dir):              func() bool { _, err := loadWish(dir); return err != nil },
				paths.ConfigFile:           func() bool { _, err := LoadConfig(paths.ConfigFile); return err != nil },
			} {
				if err := lay(path); err != nil {
					t.Fatal(err)
				}
				told := make(chan bool, 1)
				go func() { told <- read() }()
				select {
				case ok := <-told:
					if !ok {
						t.Errorf("%s: it was taken for a file of ours", path)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: it is waited for", path)
				}
			}
		})
	}
}

func TestASupervisorBesideFIFOsStarts(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	for _, path := range []string{environmentMemoryFile(b.o.Paths.State), programFile(b.o.Paths.State), b.o.Paths.ServerRecord, keptFile(b.o.Paths)} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	b.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b.start()
	b.phase(Running)
	if _, err := b.client.RestartServer(t.Context()); err != nil {
		t.Error(err)
	}
	b.stop()
	if n := strings.Count(log.String(), keptFile(b.o.Paths)+": isn't a regular file; remove it"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, &log)
	}
}
