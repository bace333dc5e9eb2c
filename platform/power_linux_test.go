package platform

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// fakeLogind is what logind does on the bus (systemd 252): it hands out delay locks,
// and knows of each whether it is still held.
type fakeLogind struct {
	t    *testing.T
	conn *dbus.Conn
	end  func() // takes it off the bus
	quit chan struct{}
	done chan struct{}

	mu       sync.Mutex
	locks    map[string][]int // descriptors that hang up when the lock is released; newest last
	asked    []string         // what was asked of it
	under    map[string]any   // its properties
	refusals map[string]string
}

// startLogind puts one on the bus. Its answers are sent before anything else is said,
// and the lock is in nobody's hands but the asker's then.
func startLogind(t *testing.T, b *testBus) *fakeLogind {
	t.Helper()
	conn, err := dbus.Connect(b.address())
	must(t, err)
	f := &fakeLogind{
		t: t, conn: conn, quit: make(chan struct{}), done: make(chan struct{}), locks: map[string][]int{}, refusals: map[string]string{},
		under: map[string]any{"PreparingForShutdown": false, "PreparingForSleep": false, "InhibitDelayMaxUSec": uint64(5e6)},
	}
	calls := make(chan *dbus.Message, 64)
	conn.Eavesdrop(calls)
	go f.serve(calls)
	// It is asked as soon as it has its name; the answer to this goes to calls. An earlier one may still be leaving.
	must(t, conn.BusObject().Call(busName+".RequestName", dbus.FlagNoReplyExpected, logindName, uint32(0)).Err)
	f.end = sync.OnceFunc(f.leave)
	t.Cleanup(f.end)
	return f
}

func (f *fakeLogind) leave() {
	f.conn.Eavesdrop(nil) // else godbus sends to what it has closed
	_ = f.conn.Close()
	close(f.quit)
	<-f.done
	f.mu.Lock()
	defer f.mu.Unlock()
	for what := range f.locks {
		for _, fd := range f.locks[what] {
			_ = unix.Close(fd)
		}
	}
	clear(f.locks)
}

func (f *fakeLogind) serve(calls <-chan *dbus.Message) {
	defer close(f.done)
	for {
		var m *dbus.Message
		select {
		case m = <-calls:
		case <-f.quit:
			return
		}
		if m == nil { // the bus is gone
			return
		}
		if m.Type != dbus.TypeMethodCall {
			continue
		}
		answer := &dbus.Message{Type: dbus.TypeMethodReply, Flags: dbus.FlagNoReplyExpected, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldDestination: m.Headers[dbus.FieldSender], dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
		}}
		f.mu.Lock()
		body, err := f.answer(m)
		if err != nil {
			answer.Type = dbus.TypeError
			answer.Headers[dbus.FieldErrorName] = dbus.MakeVariant(err.Error())
			body = "refused"
		}
		if body != nil {
			answer.Body = []any{body}
			answer.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body))
			f.conn.Send(answer, nil)
		}
		if fd, ok := body.(dbus.UnixFD); ok {
			_ = unix.Close(int(fd))
		}
		f.mu.Unlock()
	}
}

// answer is that of one call; nil is none at all.
func (f *fakeLogind) answer(m *dbus.Message) (any, error) {
	member, _ := m.Headers[dbus.FieldMember].Value().(string)
	f.asked = append(f.asked, fmt.Sprint(member, m.Body))
	switch member {
	case "Get":
		name, _ := m.Body[1].(string)
		if why := f.refusals[name]; why != "" {
			return nil, errors.New(why)
		}
		return dbus.MakeVariant(f.under[name]), nil
	case "Inhibit":
		what, _ := m.Body[0].(string)
		switch why := f.refusals[what]; {
		case why == "silence":
			return nil, nil
		case why != "":
			return nil, errors.New(why)
		case m.Body[3] != "delay" || what != "shutdown" && what != "sleep":
			return nil, errors.New("org.freedesktop.DBus.Error.InvalidArgs")
		}
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			return nil, err
		}
		f.locks[what] = append(f.locks[what], ends[0])
		return dbus.UnixFD(ends[1]), nil
	}
	return nil, errors.New("org.freedesktop.DBus.Error.UnknownMethod")
}

// prepare announces, or calls off.
func (f *fakeLogind) prepare(what string, begins bool) {
	f.t.Helper()
	f.mu.Lock()
	f.under["PreparingFor"+what] = begins
	f.mu.Unlock()
	must(f.t, f.conn.Emit(logindPath, logindManager+".PrepareFor"+what, begins))
}

// refuse has it refuse a lock, or a property, with an error's name.
func (f *fakeLogind) refuse(what, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusals[what] = why
}

func (f *fakeLogind) set(property string, value any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under[property] = value
}

// held counts the locks that are held.
func (f *fakeLogind) held(what string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fd := range f.locks[what] {
		poll := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(poll, 0)
		must(f.t, err)
		if poll[0].Revents&unix.POLLHUP == 0 {
			n++
		}
	}
	return n
}

// holds waits until so many locks of each kind are held.
func (f *fakeLogind) holds(shutdown, sleep int) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d locks for shutdown and %d for sleep are held", shutdown, sleep), func() bool {
		return f.held("shutdown") == shutdown && f.held("sleep") == sleep
	})
}

// taken is how often locks of a kind were handed out.
func (f *fakeLogind) taken(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locks[what])
}

// powerEar is who is told: each event waits in came until it is let go.
type powerEar struct {
	t     *testing.T
	came  chan PowerEvent
	leave chan struct{}
	book  *logBook
}

// watched begins to watch; the watch ends with the test, or with stop.
func watched(t *testing.T, watch func(context.Context, *powerEar)) (e *powerEar, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	e = &powerEar{t: t, came: make(chan PowerEvent), leave: make(chan struct{})}
	watch(ctx, e)
	return e, cancel
}

func withLocks(ctx context.Context, e *powerEar) {
	book, log := newLog()
	e.book = book
	WatchPower(ctx, log, e.handle(ctx))
}

func withoutLocks(ctx context.Context, e *powerEar) {
	book, log := newLog()
	e.book = book
	HearPower(ctx, log, e.handle(ctx))
}

func (e *powerEar) handle(ctx context.Context) func(PowerEvent) {
	return func(p PowerEvent) {
		select {
		case e.came <- p:
			<-e.leave
		case <-ctx.Done():
		}
	}
}

// hears waits for the next event, which must be that one; its handling goes on until let.
func (e *powerEar) hears(want PowerEvent) (let func()) {
	e.t.Helper()
	select {
	case got := <-e.came:
		if got != want {
			e.t.Fatalf("%s came, not %s", got, want)
		}
	case <-time.After(patience):
		e.t.Fatalf("no %s came", want)
	}
	return sync.OnceFunc(func() { e.leave <- struct{}{} })
}

// systemBusOf makes a private bus the system's.
func systemBusOf(t *testing.T) *testBus {
	t.Helper()
	b := startBus(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.address())
	return b
}

func TestDelayLocks(t *testing.T) {
	for _, tt := range []struct {
		announced    string
		begins, ends PowerEvent
		held         func(f *fakeLogind, n int) // n locks of that kind, and the other one
	}{
		{"Shutdown", PowerShutdown, PowerStays, func(f *fakeLogind, n int) { f.t.Helper(); f.holds(n, 1) }},
		{"Sleep", PowerSleep, PowerWake, func(f *fakeLogind, n int) { f.t.Helper(); f.holds(1, n) }},
	} {
		t.Run(tt.announced, func(t *testing.T) {
			noLeak(t)
			f := startLogind(t, systemBusOf(t))
			e, stop := watched(t, withLocks)
			f.holds(1, 1)
			for range 3 {
				f.prepare(tt.announced, true)
				let := e.hears(tt.begins)
				tt.held(f, 1)
				let()
				tt.held(f, 0)
				f.prepare(tt.announced, false)
				let = e.hears(tt.ends)
				tt.held(f, 1) // taken again before it is handled: the next one may come at once
				let()
			}
			stop()
			f.holds(0, 0)
			if e.book.lines("") != 0 {
				t.Errorf("it complains: %s", e.book.b.String())
			}
		})
	}
}

func TestDelayLocksAreTakenApartAndStayOurs(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	_, stop := watched(t, withLocks)
	f.holds(1, 1)
	f.mu.Lock()
	var inhibits []string
	for _, a := range f.asked {
		if what, yes := strings.CutPrefix(a, "Inhibit"); yes {
			inhibits = append(inhibits, what)
		}
	}
	f.mu.Unlock()
	want := []string{
		"[shutdown Intermission Writes down which AI sessions are at work delay]",
		"[sleep Intermission Writes down which AI sessions are at work delay]",
	}
	if !slices.Equal(inhibits, want) {
		t.Errorf("asked for %q", inhibits)
	}
	// A server that is started now must not hold up the machine.
	child, err := Start(Spec{Argv: []string{program(t, "sleep", "coreutils"), "600"}, Env: []string{}})
	must(t, err)
	stop()
	f.holds(0, 0)
	must(t, child.Identity().Signal(Kill))
	child.Wait()
}

func TestDelayLockIsLetGoWhenLogindWaitsNoLonger(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	f := startLogind(t, b)
	f.set("InhibitDelayMaxUSec", uint64(20_000))
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	f.prepare("Shutdown", true)
	let := e.hears(PowerShutdown)
	f.holds(0, 1) // while it is handled
	let()
	stop()
}

func TestPowerEventsComeOneAtATimeAndInOrder(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	f.prepare("Sleep", true)
	f.prepare("Shutdown", true)
	f.prepare("Sleep", false)
	f.prepare("Shutdown", false)
	f.prepare("Shutdown", true)
	f.prepare("Shutdown", true) // nothing forbids it
	for _, want := range []PowerEvent{PowerSleep, PowerShutdown, PowerWake, PowerStays, PowerShutdown, PowerShutdown} {
		let := e.hears(want)
		select {
		case p := <-e.came:
			t.Fatalf("%s came while %s was handled", p, want)
		default:
		}
		let()
	}
	stop()
	f.holds(0, 0)
}

func TestWakeWithoutSleep(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	f.prepare("Sleep", false)
	e.hears(PowerWake)()
	f.holds(1, 1)
	f.prepare("Shutdown", false)
	e.hears(PowerStays)()
	f.holds(1, 1)
	stop()
}

// TestPowerIsHeardWithoutLocks: who only listens holds nothing up.
func TestPowerIsHeardWithoutLocks(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	e, stop := watched(t, withoutLocks)
	ready(f)
	f.prepare("Sleep", true)
	e.hears(PowerSleep)()
	f.prepare("Sleep", false)
	e.hears(PowerWake)()
	if n := f.taken("sleep") + f.taken("shutdown"); n != 0 {
		t.Errorf("%d locks were taken", n)
	}
	stop()
}

// ready waits until a watch without locks has asked what is under way.
func ready(f *fakeLogind) {
	f.t.Helper()
	eventually(f.t, "it was asked what is under way", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Contains(f.asked, "Get["+logindManager+" PreparingForSleep]")
	})
}

// TestPowerEventThatIsUnderWay: who comes between the announcement and the end hears of it, too.
func TestPowerEventThatIsUnderWay(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	f.set("PreparingForShutdown", true)
	f.refuse("shutdown", "org.freedesktop.login1.OperationInProgress")
	e, stop := watched(t, withLocks)
	e.hears(PowerShutdown)()
	f.holds(0, 1)
	f.refuse("shutdown", "")
	f.prepare("Shutdown", false)
	e.hears(PowerStays)()
	f.holds(1, 1)
	stop()
}

// TestLogindIsRestarted: locks are taken anew, and what it has forgotten counts as called off.
func TestLogindIsRestarted(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	f := startLogind(t, b)
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	f.end()
	f = startLogind(t, b)
	f.holds(1, 1)

	f.prepare("Sleep", true)
	let := e.hears(PowerSleep)
	f.end()
	f = startLogind(t, b) // it doesn't know that there is a sleep
	let()
	e.hears(PowerWake)()
	f.holds(1, 1)

	f.end()
	f = startLogind(t, b)
	f.holds(1, 1)
	f.prepare("Shutdown", true)
	e.hears(PowerShutdown)()
	f.end()
	stop()
}

// TestLogindComesLater: it is waited for, not asked for again and again.
func TestLogindComesLater(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	e, stop := watched(t, withLocks)
	eventually(t, "it complains", func() bool { return e.book.lines("Missing is logind") == 1 })
	f := startLogind(t, b)
	f.holds(1, 1)
	f.prepare("Sleep", true)
	e.hears(PowerSleep)()
	stop()
	if n := e.book.lines(""); n != 1 {
		t.Errorf("%d lines: %s", n, e.book.b.String())
	}
}

func TestDelayLockThatIsRefused(t *testing.T) {
	noLeak(t)
	f := startLogind(t, systemBusOf(t))
	f.refuse("shutdown", "org.freedesktop.DBus.Error.AccessDenied")
	e, stop := watched(t, withLocks)
	f.holds(0, 1)
	for range 2 {
		f.prepare("Shutdown", true) // it is heard all the same, and nothing waits
		e.hears(PowerShutdown)()
		f.prepare("Shutdown", false)
		e.hears(PowerStays)()
	}
	f.prepare("Sleep", true)
	let := e.hears(PowerSleep)
	f.holds(0, 1)
	let()
	f.holds(0, 0)
	stop()
	if n := e.book.lines("the machine's shutdown won't wait for us"); n != 1 || e.book.lines("") != 1 {
		t.Errorf("%d lines: %s", n, e.book.b.String())
	}
}

// TestStrangersAnnounceNothing: everybody on the bus can send a signal to us.
func TestStrangersAnnounceNothing(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	f := startLogind(t, b)
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	stranger := b.connect(t)
	var names []string
	must(t, stranger.BusObject().Call(busName+".ListNames", 0).Store(&names))
	for _, name := range names {
		for _, s := range []struct {
			name string
			body []any
		}{
			{logindManager + ".PrepareForSleep", []any{true}},
			{ownerChanged, []any{logindName, "", stranger.Names()[0]}},
			{logindManager + ".PrepareForSleep", []any{true}},
		} {
			m := &dbus.Message{Type: dbus.TypeSignal, Body: s.body, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldDestination: dbus.MakeVariant(name), dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(logindPath)),
				dbus.FieldInterface: dbus.MakeVariant(s.name[:strings.LastIndexByte(s.name, '.')]),
				dbus.FieldMember:    dbus.MakeVariant(s.name[strings.LastIndexByte(s.name, '.')+1:]),
				dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(s.body...)),
			}}
			must(t, stranger.Send(m, nil).Err)
		}
	}
	for _, body := range [][]any{{}, {"true"}, {uint32(1)}} { // and logind is believed to make sense
		must(t, f.conn.Emit(logindPath, logindManager+".PrepareForSleep", body...))
	}
	must(t, stranger.BusObject().Call(busName+".GetId", 0).Err) // all was delivered
	f.prepare("Shutdown", true)
	e.hears(PowerShutdown)()
	stop()
}

// TestSystemBusIsLost: one line, no lock that nobody answers for, and all is as
// before when it is back.
func TestSystemBusIsLost(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	f := startLogind(t, b)
	e, stop := watched(t, withLocks)
	f.holds(1, 1)
	b.kill()
	f.holds(0, 0)
	f.end()
	must(t, errors.Join(os.Remove(b.socket)))
	b.start(t)
	f = startLogind(t, b)
	f.holds(1, 1)
	f.prepare("Sleep", true)
	e.hears(PowerSleep)()
	stop()
	if n := e.book.lines("Missing is the system bus"); n != 1 {
		t.Errorf("%d lines: %s", n, e.book.b.String())
	}
}

func TestNoSystemBus(t *testing.T) {
	for _, tt := range []struct{ name, address string }{
		{"no directory", "unix:path=/nowhere/bus"},
		{"no socket", "unix:path=" + filepath.Join(t.TempDir(), "bus")},
		{"another transport", "tcp:host=localhost,port=1"},
		{"abstract, and gone", "unix:abstract=intermission-nowhere"},
		{"no address", "nonsense"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeak(t)
			t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", tt.address)
			e, stop := watched(t, withLocks)
			eventually(t, "it complains", func() bool { return e.book.lines("Missing is the system bus") == 1 })
			stop()
			if n := e.book.lines(""); n != 1 {
				t.Errorf("%d lines: %s", n, e.book.b.String())
			}
		})
	}
}

// TestLogindThatDoesNotAnswer: a lock that may come later is not held by accident.
func TestLogindThatDoesNotAnswer(t *testing.T) {
	noLeak(t)
	b := systemBusOf(t)
	f := startLogind(t, b)
	f.refuse("sleep", "silence")
	bus, _, err := dialSystemBus(t.Context(), b.address())
	must(t, err)
	defer bus.close()
	l := newLogind(true)
	err = l.take(within(t, 50*time.Millisecond), bus, powerKinds[1])
	checkError(t, err, "no answer in time")
	closedSoon(t, "the connection is given up", bus.Context().Done())
	if len(l.locks) != 0 {
		t.Error("a lock is held")
	}
}

func TestDelayLockIsClosedAtExec(t *testing.T) {
	f := startLogind(t, systemBusOf(t))
	bus, _, err := dialSystemBus(t.Context(), os.Getenv("DBUS_SYSTEM_BUS_ADDRESS"))
	must(t, err)
	defer bus.close()
	l := newLogind(true)
	must(t, l.take(t.Context(), bus, powerKinds[0]))
	defer l.releaseAll()
	f.holds(1, 0)
	flags, err := unix.FcntlInt(l.locks["shutdown"].Fd(), syscall.F_GETFD, 0)
	must(t, err)
	if flags&unix.FD_CLOEXEC == 0 {
		t.Error("a child would inherit the lock")
	}
}
