package supervisor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// onSmallDisks makes this test binary, in a mount name space of its own, run the parts of TestASmallDisk.
const onSmallDisks = "INTERMISSION_TEST_SMALL_DISKS"

// TestASmallDisk is full, or read-only, at each step, on real file systems: what
// can't be assured isn't done, and said; when there is room all goes on by itself.
func TestASmallDisk(t *testing.T) {
	if os.Getenv(onSmallDisks) != "" {
		for name, part := range map[string]func(*testing.T, *bed){
			"the state's at a crash":      stateFullAtACrash,
			"the state's at a stop":       stateFullAtAStop,
			"the state's at a start":      stateFullAtAStart,
			"the state's when it is left": stateFullWhenLeft,
			"the state's at a consent":    stateFullAtAConsent,
			"the log's":                   logFull,
			"the database's at a crash":   databaseFullAtACrash,
			"the database's is read-only": databaseReadOnly,
			"the ledger's is read-only":   ledgerReadOnly,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				part(t, newBed(t, nil))
			})
		}
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestASmallDisk$", "-test.v", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), onSmallDisks+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if uid := os.Getuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{21} // CAP_SYS_ADMIN, which mount takes
	}
	// A file, and no pipe: whatever it left behind would keep that open.
	said, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	out, unread := os.ReadFile(said.Name())
	if unread != nil {
		t.Fatal(unread)
	}
	if err != nil && (strings.Contains(string(out), notMounted) || len(out) == 0) {
		if os.Getenv("CI") != "" {
			t.Fatalf("a small disk can't be mounted: %v %s", err, out)
		}
		t.Skipf("a small disk can't be mounted: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const notMounted = "no disk can be mounted"

// disk mounts a small disk at a directory of the bed.
func (b *bed) disk(dir string) (at string) {
	b.t.Helper()
	at = filepath.Join(b.dir, dir)
	err := os.MkdirAll(at, 0o700)
	if err == nil {
		err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err == nil {
		err = syscall.Mount("none", at, "tmpfs", 0, "size=2m,mode=700")
	}
	if err != nil {
		b.t.Fatal(notMounted, err)
	}
	b.t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	return at
}

// fill leaves so many bytes of the disk at dir.
func (b *bed) fill(dir string, leave int64) (room func()) {
	b.t.Helper()
	path := filepath.Join(dir, "fill")
	f, err := os.Create(path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	n, err := io.Copy(f, zeros{})
	if !errors.Is(err, syscall.ENOSPC) {
		b.t.Fatalf("the disk doesn't get full: %v", err)
	}
	if err := f.Truncate(max(0, n-leave)); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			b.t.Error(err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// worker starts all and gives a session at work.
func (b *bed) worker() (st control.Status, id string) {
	b.t.Helper()
	b.start()
	st = b.phase(Running)
	id = b.prompt("[[shell sleep 300]]")
	b.atWork(id)
	return st, id
}

func (b *bed) next(st control.Status) {
	b.t.Helper()
	b.status("another incarnation", func(now control.Status) bool {
		return now.Server.State == string(Running) && now.Server.Incarnation != st.Server.Incarnation
	})
}

func stateFullAtACrash(t *testing.T, b *bed) {
	state := b.disk("state")
	st, id := b.worker()
	requests := b.requests()
	room := b.fill(state, 0)
	claim(t, b.databasePath(), 300) // more than there is room for in what the ledger's -wal file has already
	signal(t, st.Server.PID, platform.Kill)
	b.phase(Blocked)
	b.said(b.o.Paths.Ledger, "its disk is full", "make room on the disk of")
	b.quiet(requests)
	room()
	b.next(st)
	p, err := b.client.Pending(t.Context())
	if err != nil || len(p.Pending) != 301 {
		t.Errorf("%d are pending, %v", len(p.Pending), err)
	}
	b.waitsWith(id)
	b.quiet(requests)
}

func stateFullAtAStop(t *testing.T, b *bed) {
	state := b.disk("state")
	_, id := b.worker()
	requests := b.requests()
	room := b.fill(state, 0)
	for _, act := range []func(context.Context) (control.Status, error){b.client.StopServer, b.client.RestartServer} {
		if _, err := act(t.Context()); err == nil || !strings.Contains(err.Error(), "it was not stopped") || !strings.Contains(err.Error(), "room on its disk") {
			t.Errorf("%v", err)
		}
		b.atWork(id)
	}
	room()
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Error(err)
	}
	b.phase(Stopped)
	b.waits(id)
	b.stop()
	b.start()
	if st := b.phase(Stopped); st.Server.Desired != "stopped" {
		t.Errorf("the wish is lost: %+v", st.Server)
	}
	b.waits(id)
	b.quiet(requests)
}

// A server that was left is not stopped without order, and who stops it hears why.
func stateFullWhenLeft(t *testing.T, b *bed) {
	state := b.disk("state")
	st, id := b.worker()
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	room := b.fill(state, 0)
	err := StopLeft(context.Background(), b.o)
	if err == nil || !strings.Contains(err.Error(), "disk is full") || !strings.HasSuffix(err.Error(), "; make room on the disk of "+b.o.Paths.State+", and stop it again") {
		t.Errorf("%v", err)
	}
	if pid, _ := LivingServer(b.o.Paths); pid != st.Server.PID {
		t.Fatalf("the server has ended: pid %d", pid)
	}
	room()
	if err := StopLeft(context.Background(), b.o); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.phase(Running)
	b.waits(id)
}

func stateFullAtAStart(t *testing.T, b *bed) {
	state := b.disk("state")
	_, id := b.worker()
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	requests := b.requests()
	for _, leave := range []int64{0, 4096, 8192, 16384} {
		room := b.fill(state, leave)
		_, err := b.client.StartServer(t.Context())
		t.Logf("with %d bytes left: %v", leave, err)
		if err != nil && !strings.Contains(err.Error(), "space left") && !strings.Contains(err.Error(), "make room") {
			t.Errorf("%v", err)
		}
		if err != nil && leave == 0 {
			b.nobodyRegistered()
		}
		room()
		b.phase(Running)
		b.waits(id)
		b.quiet(requests)
		if _, err := b.client.StopServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// nobodyRegistered makes sure that no server was left behind by a start that failed.
func (b *bed) nobodyRegistered() {
	b.t.Helper()
	b.until("no server is registered, or it is ours", func() bool {
		st, err := b.client.Status(b.t.Context())
		_, gone := os.Stat(filepath.Join(b.dir, ".local/state/opencode/service.json"))
		return err == nil && (st.Server.PID != 0 || errors.Is(gone, os.ErrNotExist) || st.Server.State == string(Starting))
	}, func() any { st, _ := b.client.Status(b.t.Context()); return st })
}

func stateFullAtAConsent(t *testing.T, b *bed) {
	state := b.disk("state")
	b.start()
	st := b.phase(Running)
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	signal(t, st.Server.PID, platform.Kill)
	b.next(st)
	b.waits(id)
	requests, consents := b.requests(), 0
	for leave := int64(0); ; leave += 4096 {
		if leave > 40*4096 {
			t.Fatal("never resumed")
		}
		room := b.fill(state, leave)
		result, err := b.client.Resume(t.Context(), id, 0)
		t.Logf("with %d bytes left: %+v, %v", leave, result, err)
		room()
		consents++
		now, listed := b.client.Pending(t.Context())
		if listed != nil {
			t.Fatal(listed)
		}
		if n := b.requests() - requests; n > consents || n > 1 {
			t.Fatalf("%d executions of %d consents", n, consents)
		}
		if err == nil && result.Outcome == string(restart.VerdictResumed) {
			break
		}
		if err != nil && !strings.Contains(err.Error(), "make room") && !strings.Contains(err.Error(), "ledger") {
			t.Errorf("it isn't said: %v", err)
		}
		if len(now.Pending) == 0 { // it goes on, and that could not be written down
			break
		}
		b.until("it can be decided", func() bool {
			now, err := b.client.Pending(t.Context())
			return err == nil && (len(now.Pending) == 0 || now.Pending[0].State == restart.StatePending || now.Pending[0].State == restart.StateUnknown)
		}, func() any { now, _ := b.client.Pending(t.Context()); return now })
	}
	b.atWork(id)
	if n := b.requests() - requests; n != 1 {
		t.Errorf("%d executions", n)
	}
}

func logFull(t *testing.T, b *bed) {
	logs, err := filepath.Rel(b.dir, b.o.Paths.Log)
	if err != nil {
		t.Fatal(err)
	}
	dir := b.disk(logs)
	room := b.fill(dir, 0)
	st, id := b.worker()
	requests := b.requests()
	signal(t, st.Server.PID, platform.Kill)
	b.next(st)
	b.waits(id)
	b.quiet(requests)
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Error(err)
	}
	b.phase(Stopped)
	room()
	if _, err := b.client.StartServer(t.Context()); err != nil {
		t.Error(err)
	}
	b.phase(Running)
	b.until("its output is kept again", func() bool {
		info, err := os.Stat(filepath.Join(b.o.Paths.Log, "server.log"))
		return err == nil && info.Size() > 0
	}, func() any { return nil })
	b.waits(id)
}

func databaseFullAtACrash(t *testing.T, b *bed) {
	data := b.disk(".local/share/opencode")
	st, id := b.worker()
	requests := b.requests()
	room := b.fill(data, 0)
	signal(t, st.Server.PID, platform.Kill)
	b.phase(Blocked)
	b.said("opencode.db", "disk", "make room on the disk of "+data)
	b.nobodyStarts()
	b.waits(id) // what was taken in is shown
	room()
	b.next(st)
	b.waits(id)
	b.quiet(requests)
}

// remount needs that nothing is open for writing there.
func remount(t *testing.T, at string, flags uintptr) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := syscall.Mount("none", at, "tmpfs", syscall.MS_REMOUNT|flags, "size=2m")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func databaseReadOnly(t *testing.T, b *bed) {
	// Made elsewhere, for a supervisor keeps its handle on a database to the end of the process.
	maker := newBed(t, nil)
	maker.start()
	maker.phase(Running)
	maker.stop()
	claim(t, maker.databasePath(), 1)
	maker.pages()
	content, err := os.ReadFile(maker.databasePath())
	if err != nil {
		t.Fatal(err)
	}
	data := b.disk(".local/share/opencode")
	if err := os.WriteFile(b.databasePath(), content, 0o600); err != nil {
		t.Fatal(err)
	}
	remount(t, data, syscall.MS_RDONLY)
	b.unfinished = true
	b.start()
	b.phase(Blocked)
	b.said("opencode.db", "writable")
	b.until("the lock is held", func() bool { return b.locked(b.serverLock()) }, func() any { return nil })
	remount(t, data, 0)
	b.phase(Running)
	b.waits("ses_bench00001")
	b.quiet(0)
}

func ledgerReadOnly(t *testing.T, b *bed) {
	ledgers := b.disk("ledgers")
	b.o.Paths.Ledger = filepath.Join(ledgers, "ledger.db")
	b.start()
	b.phase(Running)
	b.stop()
	claim(t, b.databasePath(), 1)
	requests := b.requests()
	remount(t, ledgers, syscall.MS_RDONLY)
	b.unfinished = true
	b.start()
	b.phase(Blocked)
	b.said(b.o.Paths.Ledger, "writable")
	b.until("the lock is held", func() bool { return b.locked(b.serverLock()) }, func() any { return nil })
	remount(t, ledgers, 0)
	b.phase(Running)
	b.waits("ses_bench00001")
	b.quiet(requests)
}
