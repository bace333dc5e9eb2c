package platform

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"go.uber.org/goleak"
)

// busConfig is a session bus that starts no services, so that only what a test puts on it is there.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=SOCKET</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>`

// testBus is a private dbus-daemon.
type testBus struct {
	*child
	socket, config string
}

// program finds a program that a test needs. In CI it must be there.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") != "":
		t.Fatalf("%s is missing; install %s", name, debian)
	default:
		t.Skipf("%s isn't installed (Debian: %s)", name, debian)
	}
	return ""
}

// startBus starts a bus and makes it the session bus of this process.
func startBus(t *testing.T) *testBus {
	t.Helper()
	dir := socketDir(t)
	b := &testBus{socket: filepath.Join(dir, "bus"), config: filepath.Join(dir, "bus.conf")}
	must(t, os.WriteFile(b.config, []byte(strings.ReplaceAll(busConfig, "SOCKET", b.socket)), 0o600))
	b.start(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", b.address())
	return b
}

func (b *testBus) address() string { return "unix:path=" + b.socket }

func (b *testBus) start(t *testing.T) {
	t.Helper()
	daemon := program(t, "dbus-daemon", "dbus-daemon")
	b.child, _ = spawnCommand(t, exec.Command(daemon, "--nofork", "--config-file="+b.config, "--print-address"))
}

// freeze stops the daemon's process until the function is called.
func (b *testBus) freeze(t *testing.T) (thaw func()) {
	t.Helper()
	must(t, b.cmd.Process.Signal(syscall.SIGSTOP))
	return func() { must(t, b.cmd.Process.Signal(syscall.SIGCONT)) }
}

// connect makes a connection for a part that the test plays.
func (b *testBus) connect(t *testing.T) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(b.address())
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// own takes a name on the bus.
func own(t *testing.T, conn *dbus.Conn, name string) {
	t.Helper()
	reply, err := conn.RequestName(name, dbus.NameFlagDoNotQueue)
	must(t, err)
	if reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("the name %s is taken", name)
	}
}

// connections counts who is on the bus.
func connections(t *testing.T, conn *dbus.Conn) (n int) {
	t.Helper()
	var names []string
	must(t, conn.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names))
	for _, name := range names {
		if strings.HasPrefix(name, ":") {
			n++
		}
	}
	return n
}

// within is a context that is ended long before a test's patience.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// noLeak checks at the end of the test that it has left no goroutine behind.
func noLeak(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// logBook keeps what is logged.
type logBook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) lines(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}

func newLog() (*logBook, *slog.Logger) {
	book := &logBook{}
	return book, slog.New(slog.NewTextHandler(book, nil))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestBusAddress(t *testing.T) {
	t.Parallel()
	runtime := filepath.Join(socketDir(t), "run time") // a space is escaped in an address
	must(t, os.Mkdir(runtime, 0o700))
	listener, err := net.Listen("unix", filepath.Join(runtime, "bus"))
	must(t, err)
	defer func() { _ = listener.Close() }()
	found := "unix:path=" + strings.ReplaceAll(runtime, " ", "%20") + "/bus"
	for _, tt := range []struct {
		name, variable, runtime, want, err string
	}{
		{"the variable decides", "unix:path=/x", runtime, "unix:path=/x", ""},
		{"no variable", "", runtime, found, ""},
		{"one that would start a bus", "autolaunch:", runtime, found, ""},
		{"one that would start a bus, with its scope", "autolaunch:scope=*user", runtime, found, ""},
		{"nothing there", "", t.TempDir(), "", "DBUS_SESSION_BUS_ADDRESS isn't set"},
		{"a relative directory", "", "run", "", "DBUS_SESSION_BUS_ADDRESS isn't set"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"DBUS_SESSION_BUS_ADDRESS": tt.variable, "XDG_RUNTIME_DIR": tt.runtime}
			got, err := busAddress(func(k string) string { return env[k] })
			checkError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDialBusSocket(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "a;b,c")
	listener, err := net.Listen("unix", path)
	must(t, err)
	defer func() { _ = listener.Close() }()
	abstract, err := net.Listen("unix", "@"+dir)
	must(t, err)
	defer func() { _ = abstract.Close() }()
	escaped := "unix:path=" + dbus.EscapeBusAddressValue(path)
	for _, tt := range []struct{ name, address, err string }{
		{"a path", escaped, ""},
		{"with its identifier", "unix:guid=0123456789abcdef,path=" + dbus.EscapeBusAddressValue(path), ""},
		{"abstract", "unix:abstract=" + dbus.EscapeBusAddressValue(dir), ""},
		{"the second of two", "unix:path=/nowhere/bus;" + escaped, ""},
		{"the first of two", escaped + ";unix:path=/nowhere/bus", ""},
		{"gone", "unix:path=/nowhere/bus", "no such file"},
		{"another transport", "tcp:host=localhost,port=1", "names no Unix socket"},
		{"no address", "bus", "names no Unix socket"},
		{"a wrong escape", "unix:path=%zz", "names no Unix socket"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := dialBusSocket(t.Context(), tt.address)
			checkError(t, err, tt.err)
			if err == nil {
				_ = c.Close()
			}
		})
	}
}

func TestOpenDesktop(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	d, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	defer d.Close()
	again, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	if d.Key != again.Key || len(d.Key) != 32 {
		t.Errorf("one session has the keys %q and %q", d.Key, again.Key)
	}
	again.Close()
	again.Close()
	closedSoon(t, "Done after Close", again.Done())
	select {
	case <-d.Done():
		t.Error("the session is said to be gone")
	default:
	}
	bus.kill() // what happens at logout
	closedSoon(t, "Done after the end of the bus", d.Done())

	bus.start(t)
	other, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	defer other.Close()
	if other.Key == d.Key {
		t.Error("the next session has the key of the one before")
	}
}

func TestOpenDesktopFindsTheBusOfTheRuntimeDirectory(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(bus.socket))
	d, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	d.Close()
	if got := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); got != bus.address() {
		t.Errorf("the address for others is %q", got)
	}
}

func TestOpenDesktopWithoutOne(t *testing.T) {
	noLeak(t)
	silent := filepath.Join(socketDir(t), "bus")
	l, err := net.Listen("unix", silent) // takes connections and says nothing
	must(t, err)
	defer func() { _ = l.Close() }()
	hangsUp := filepath.Join(socketDir(t), "bus")
	closing, err := net.Listen("unix", hangsUp)
	must(t, err)
	serve(t, closing)
	for _, tt := range []struct{ name, address, err string }{
		{"no address", "", "isn't set"},
		{"nobody listens", "unix:path=/nowhere/bus", "no such file"},
		{"no answer", "unix:path=" + silent, "no answer in time"},
		{"no bus", "unix:path=" + hangsUp, "doesn't answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("DBUS_SESSION_BUS_ADDRESS", tt.address)
			t.Setenv("XDG_RUNTIME_DIR", "")
			_, err := OpenDesktop(within(t, 100*time.Millisecond), quiet())
			checkError(t, err, tt.err)
			if !errors.Is(err, ErrNoDesktop) || strings.Contains(err.Error(), "\n") {
				t.Errorf("no clear line that tells of no desktop: %v", err)
			}
			if got := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); got != tt.address {
				t.Errorf("the environment was changed to %q", got)
			}
		})
	}
}

func TestOpenDesktopOnAFrozenBus(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	thaw := bus.freeze(t)
	_, err := OpenDesktop(within(t, 100*time.Millisecond), quiet())
	thaw()
	if !errors.Is(err, ErrNoDesktop) {
		t.Errorf("got %v", err)
	}
	d, err := OpenDesktop(t.Context(), quiet())
	must(t, err)
	d.Close()
}

// TestBlockedWrite: a message that fills the socket of a frozen bus is given up, too.
func TestBlockedWrite(t *testing.T) {
	noLeak(t)
	bus := startBus(t)
	b, err := dialBus(t.Context(), bus.address())
	must(t, err)
	defer b.close()
	thaw := bus.freeze(t)
	defer thaw()
	err = b.within(within(t, 50*time.Millisecond), func() error {
		return b.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, strings.Repeat("x", 4<<20)).Err
	})
	checkError(t, err, "no answer in time")
	closedSoon(t, "the connection is given up", b.Context().Done())
}
