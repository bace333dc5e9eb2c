package platform

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	busName      = "org.freedesktop.DBus"
	ownerChanged = busName + ".NameOwnerChanged"

	logindName    = "org.freedesktop.login1"
	logindPath    = "/org/freedesktop/login1"
	logindManager = logindName + ".Manager"
	// usualDelay is logind's InhibitDelayMaxSec where nobody has changed it.
	usualDelay = 5 * time.Second
)

// powerKind is something that logind announces, waits with, and calls off.
type powerKind struct {
	what             string // of a lock
	signal, property string
	begins, ends     PowerEvent
}

// powerKinds each have a lock of their own: for both in one an ordinary user is refused.
var powerKinds = []powerKind{
	{"shutdown", "PrepareForShutdown", "PreparingForShutdown", PowerShutdown, PowerStays},
	{"sleep", "PrepareForSleep", "PreparingForSleep", PowerSleep, PowerWake},
}

// logind is what we know of it, and hold of it (org.freedesktop.login1(5)). A delay
// lock is a descriptor: as long as it is open, the act waits, up to InhibitDelayMaxSec.
type logind struct {
	owner     string // its unique name; "" while it isn't there
	announced map[PowerEvent]bool
	delays    bool                // locks are taken
	locks     map[string]*os.File // by what
	delay     time.Duration       // how long logind waits at most
}

func newLogind(delays bool) *logind {
	return &logind{announced: map[PowerEvent]bool{}, delays: delays, locks: map[string]*os.File{}, delay: usualDelay}
}

// find learns who logind is. It isn't started for us: it is where there is something to say.
func (l *logind) find(ctx context.Context, b *bus) {
	ctx, cancel := context.WithTimeout(ctx, powerPatience)
	defer cancel()
	l.owner = ""
	_ = b.BusObject().CallWithContext(ctx, busName+".GetNameOwner", 0, logindName).Store(&l.owner) // without it begun says why
}

// begun tells whether something is under way already, and how long logind waits with it.
func (l *logind) begun(ctx context.Context, b *bus, k powerKind) (begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, powerPatience)
	defer cancel()
	get := func(property string) (v dbus.Variant, err error) {
		err = b.Object(logindName, logindPath).CallWithContext(ctx, busName+".Properties.Get", dbus.FlagNoAutoStart, logindManager, property).Store(&v)
		return v, err
	}
	v, err := get(k.property)
	if err != nil {
		return false, err
	}
	begun, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("logind says %s of %s", v, k.property)
	}
	l.delay = usualDelay
	if v, err = get("InhibitDelayMaxUSec"); err == nil {
		if us, ok := v.Value().(uint64); ok && us > 0 && us < uint64(time.Hour/time.Microsecond) {
			l.delay = time.Duration(us) * time.Microsecond
		}
	}
	return begun, nil
}

// take takes a lock, in place of an older one: a logind that was restarted may know
// that or not. When there is no answer in time, the connection is closed, and with it
// goes a lock that would come later.
func (l *logind) take(ctx context.Context, b *bus, k powerKind) error {
	if !l.delays {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, powerPatience)
	defer cancel()
	var fd dbus.UnixFD
	err := b.within(ctx, func() error {
		return b.Object(logindName, logindPath).Call(logindManager+".Inhibit", dbus.FlagNoAutoStart,
			k.what, "Intermission", "Writes down which AI sessions are at work", "delay").Store(&fd)
	})
	if err != nil {
		return err
	}
	l.release(k) // close-on-exec is set by whoever receives it: net's ReadMsgUnix
	l.locks[k.what] = os.NewFile(uintptr(fd), "delay lock for "+k.what)
	return nil
}

// lend gives the lock for what begins now out of our hands: it ends with release, or
// when logind waits no longer.
func (l *logind) lend(k powerKind) (release func()) {
	lock := l.locks[k.what]
	delete(l.locks, k.what)
	if lock == nil {
		return func() {}
	}
	late := time.AfterFunc(l.delay, func() { _ = lock.Close() })
	return func() {
		late.Stop()
		_ = lock.Close()
	}
}

func (l *logind) release(k powerKind) {
	if lock := l.locks[k.what]; lock != nil {
		_ = lock.Close()
		delete(l.locks, k.what)
	}
}

func (l *logind) releaseAll() {
	for _, k := range powerKinds {
		l.release(k)
	}
}
