//go:build linux

package tray

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// busConfig makes a bus on which nothing is started by name, and anybody of this user may own any name.
const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
`

// bus is a session bus of one test.
type bus struct {
	address string
	own     *dbus.Conn // for questions to the bus itself
	traffic traffic

	mu    sync.Mutex
	ours  []string                     // the unique names of the test's own connections
	items map[registration]*statusItem // they outlive a host
}

// newBus gives a test a bus of its own, whose traffic is recorded.
func newBus(t testing.TB) *bus {
	t.Helper()
	b := newPlainBus(t)
	b.watch(t)
	return b
}

// newPlainBus is newBus without the record: for much traffic.
func newPlainBus(t testing.TB) *bus {
	t.Helper()
	address, _ := startBus(t)
	b := &bus{address: address, items: map[registration]*statusItem{}}
	b.own = b.Connect(t)
	return b
}

// startBus starts a dbus-daemon, which ends with the test at the latest. Without the program the test is skipped, in CI it fails.
func startBus(t testing.TB) (address string, end func()) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs dbus-daemon: %v", err)
		}
		t.Skipf("needs dbus-daemon: %v", err)
	}
	dir, err := os.MkdirTemp("", "bus") // short enough for a socket, whatever the test's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfig, filepath.Join(dir, "bus")), 0o600); err != nil {
		t.Fatal(err)
	}

	var complaints transcript
	daemon := exec.Command(program, "--nofork", "--nopidfile", "--config-file="+config, "--print-address=1")
	daemon.Stderr = &complaints
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test binary that crashes leaves none behind
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatalf("cannot start dbus-daemon: %v", err)
	}
	end = sync.OnceFunc(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n') // it listens when it says where
	if err != nil {
		t.Fatalf("dbus-daemon gave no address: %v %s", err, complaints.String())
	}
	return strings.TrimSpace(line), end
}

// Address is what goes into DBUS_SESSION_BUS_ADDRESS.
func (b *bus) Address() string { return b.address }

// Connect returns a private connection, closed when the test ends. Its signals arrive in their order.
func (b *bus) Connect(t testing.TB, options ...dbus.ConnOption) *dbus.Conn {
	t.Helper()
	options = append([]dbus.ConnOption{dbus.WithSignalHandler(dbus.NewSequentialSignalHandler())}, options...)
	conn, err := dbus.Connect(b.address, options...)
	if err != nil {
		t.Fatalf("cannot connect to the bus: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ours = append(b.ours, conn.Names()[0])
	return conn
}

// start runs a program whose session bus this is.
func (b *bus) start(t testing.TB, program string, env ...string) *child {
	t.Helper()
	return start(t, program, append([]string{"DBUS_SESSION_BUS_ADDRESS=" + b.address}, env...)...)
}

// call calls a method, for patience at most.
func call(t testing.TB, object dbus.BusObject, method string, args ...any) *dbus.Call {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return object.CallWithContext(ctx, method, 0, args...)
}

// export puts the methods of one interface on the bus.
func export(t testing.TB, conn *dbus.Conn, path dbus.ObjectPath, name string, methods map[string]any) {
	t.Helper()
	if err := conn.ExportMethodTable(methods, path, name); err != nil {
		t.Fatal(err)
	}
}

// claim makes a connection own a well-known name. Its objects must be exported already: callers come at once.
func claim(t testing.TB, conn *dbus.Conn, name string) {
	t.Helper()
	if reply, err := conn.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("cannot own %s: reply %d, error %v", name, reply, err)
	}
}

// traffic is every message that the bus has carried.
type traffic struct {
	news news

	mu    sync.Mutex
	all   []message
	marks int
}

// message is a signal or a method call.
type message struct {
	Kind   string // "signal" or "call"
	Sender string // unique name
	Path   dbus.ObjectPath
	Name   string // interface and member
	Text   string // the first argument, where it is a string
}

// markName is a signal of the test itself, by which it knows how far the traffic is recorded.
const markName = "intermission.test.Mark"

// watch records the traffic until the test ends.
func (b *bus) watch(t testing.TB) {
	t.Helper()
	conn := b.Connect(t)
	received := make(chan *dbus.Message, 1<<16) // godbus drops what doesn't fit
	accepted, ended := make(chan *dbus.Message, 1), make(chan struct{})
	// Before the call: a monitor that answers a message, as godbus would, is thrown off the bus.
	conn.Eavesdrop(received)
	go func() {
		defer close(ended)
		for msg := range received {
			switch msg.Type {
			case dbus.TypeMethodReply, dbus.TypeError: // the first one is to our own call
				select {
				case accepted <- msg:
				default:
				}
			default:
				b.traffic.record(msg)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Eavesdrop(nil) // or godbus closes the channel, and may send on it once more
		_ = conn.Close()
		close(received)
		<-ended
	})
	conn.BusObject().Go("org.freedesktop.DBus.Monitoring.BecomeMonitor", 0, nil, []string{}, uint32(0))
	select {
	case answer := <-accepted:
		if answer.Type != dbus.TypeMethodReply {
			t.Fatalf("cannot become a monitor: %v", answer.Body)
		}
	case <-time.After(patience):
		t.Fatal("cannot become a monitor: no answer")
	}
}

func (r *traffic) record(msg *dbus.Message) {
	header := func(f dbus.HeaderField) string { s, _ := msg.Headers[f].Value().(string); return s }
	m := message{Sender: header(dbus.FieldSender), Name: header(dbus.FieldInterface) + "." + header(dbus.FieldMember)}
	m.Path, _ = msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	if len(msg.Body) > 0 {
		m.Text, _ = msg.Body[0].(string)
	}
	r.mu.Lock()
	switch {
	case m.Name == markName:
		r.marks++
	case msg.Type == dbus.TypeSignal:
		m.Kind = "signal"
		r.all = append(r.all, m)
	case msg.Type == dbus.TypeMethodCall:
		m.Kind = "call"
		r.all = append(r.all, m)
	}
	r.mu.Unlock()
	r.news.wake()
}

// state returns what is recorded, only to be read.
func (r *traffic) state() (all []message, marks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all, r.marks
}

// foreign tells whether a unique name is of another process.
func (b *bus) foreign(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.HasPrefix(name, ":") && !slices.Contains(b.ours, name)
}

// carried returns the traffic so far, with all that other processes had put out before the call.
func (b *bus) carried(t testing.TB) []message {
	t.Helper()
	var names []string
	if err := call(t, b.own.BusObject(), "org.freedesktop.DBus.ListNames").Store(&names); err != nil {
		t.Fatalf("cannot list the names on the bus: %v", err)
	}
	// An answer comes after all that its sender wrote before, and the mark comes after the answers.
	for _, name := range names {
		if b.foreign(name) {
			_ = call(t, b.own.Object(name, "/"), "org.freedesktop.DBus.Peer.Ping").Err // it may be gone by now
		}
	}
	_, before := b.traffic.state()
	if err := b.own.Emit("/", markName); err != nil {
		t.Fatal(err)
	}
	var all []message
	if !b.traffic.news.await(func() (marked bool) {
		var marks int
		all, marks = b.traffic.state()
		return marks > before
	}) {
		t.Fatal("the bus didn't carry a mark")
	}
	return all
}

// monitor is the traffic from some moment on.
type monitor struct {
	bus  *bus
	from int
}

// monitor begins to count what is sent.
func (b *bus) monitor(t testing.TB) *monitor {
	t.Helper()
	return &monitor{b, len(b.carried(t))}
}

// sent returns the signals and method calls that these unique names have sent since the monitor began; with
// no name, those of all but the test itself and the bus. What a sender has put out by now is in it. For "nothing
// was sent", let the sender do something visible at the end, and wait for that before.
func (m *monitor) sent(t testing.TB, senders ...string) []message {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(m.bus.carried(t)[m.from:]), func(msg message) bool {
		if len(senders) > 0 {
			return !slices.Contains(senders, msg.Sender)
		}
		return !m.bus.foreign(msg.Sender)
	})
}

// waitCarried returns when the bus has ever carried such a message.
func (b *bus) waitCarried(t testing.TB, what string, want func(message) bool) {
	t.Helper()
	if !b.traffic.news.await(func() bool { all, _ := b.traffic.state(); return slices.ContainsFunc(all, want) }) {
		t.Fatalf("the bus hasn't carried %s", what)
	}
}

// news lets tests wait for events. The zero value is ready.
type news struct {
	mu   sync.Mutex
	next chan struct{}
}

// wake tells that something happened.
func (n *news) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// await tries now and after each event, until it succeeds or patience is at its end.
func (n *news) await(try func() bool) bool {
	deadline := time.After(patience)
	for {
		n.mu.Lock()
		if n.next == nil {
			n.next = make(chan struct{})
		}
		next := n.next // taken before the try, or an event in between would be missed
		n.mu.Unlock()
		if try() {
			return true
		}
		select {
		case <-next:
		case <-deadline:
			return false
		}
	}
}

// gate is what every answer of a service passes, so that a test can let it hang. The zero value is open.
type gate struct {
	news  news
	mu    sync.Mutex
	shut  chan struct{} // nil while the gate is open
	stuck int           // calls that wait now
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	if shut == nil {
		g.mu.Unlock()
		return
	}
	g.stuck++
	g.mu.Unlock()
	g.news.wake()
	<-shut
}

// hang lets all calls from now on wait for an answer.
func (g *gate) hang() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// answer lets them go on.
func (g *gate) answer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut, g.stuck = nil, 0
	}
}

// waitStuck returns when a caller waits for an answer.
func (g *gate) waitStuck(t testing.TB) {
	t.Helper()
	if !g.news.await(func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.stuck > 0 }) {
		t.Fatal("nobody called the service that hangs")
	}
}
