package platform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// ready waits until a watch without locks has asked what is under way.
func ready(f *fakeLogind) {
	f.t.Helper()
	eventually(f.t, "it was asked what is under way", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Contains(f.asked, "Get["+logindManager+" PreparingForSleep]")
	})
}
