package platform

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

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
