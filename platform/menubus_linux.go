package platform

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/godbus/dbus/v5"
)

// sharedBus is the connection that dbus.SessionBus gives to all who ask, systray
// among them; the module has no way to set it. Should a later version call it
// otherwise, TestMenuBus fails.
//
//go:linkname sharedBus github.com/godbus/dbus/v5.sessionBus
var sharedBus *dbus.Conn

const menuInterface = "com.canonical.dbusmenu"

// menuBus is systray's connection to the session bus. It mends two things that
// neither systray 1.12 nor godbus 5.2 lets us have otherwise.
//
// Answers come in the order of the questions. libdbusmenu-gtk (the panels of Xfce,
// MATE, Cinnamon and Budgie, and waybar) asks for the items of a menu level by level
// without waiting, and drops an item for good whose answer comes before its parent's,
// so that its submenu stays empty. godbus answers each call on a goroutine of its own.
//
// A menu that was changed in many places is told once. systray tells of each.
type menuBus struct {
	raw   *net.UnixConn
	conn  *dbus.Conn
	order menuOrder

	mu   sync.Mutex
	held bool
	late [len(menuNews)][]byte // the latest of each that is held back
}

// menuNews are the signals that say that the menu has changed, by what stands in the
// headers of their messages: systray's path of the menu, and the signal's name. One
// tells of the layout's version as a property, the other as the protocol wants it.
var menuNews = [2]string{"PropertiesChanged", "LayoutUpdated"}

const menuPath = "/StatusNotifierItem/menu"

func (b *menuBus) open() error {
	address, err := busAddress(os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDesktop, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), desktopTimeout)
	defer cancel()
	raw, err := dialBusSocket(ctx, address)
	if err != nil {
		return fmt.Errorf("%w: the session bus doesn't answer: %w", ErrNoDesktop, err)
	}
	b.raw = raw
	conn, err := dbus.NewConn(b, dbus.WithIncomingInterceptor(b.order.asked))
	if err != nil {
		_ = raw.Close()
		return fmt.Errorf("cannot connect to the session bus: %w", err)
	}
	private := &bus{conn, raw}
	err = private.within(ctx, func() error {
		if err := conn.Auth(nil); err != nil {
			return err
		}
		return conn.Hello()
	})
	if err != nil {
		private.close()
		return fmt.Errorf("%w: the session bus doesn't let us in: %w", ErrNoDesktop, err)
	}
	b.conn, sharedBus = conn, conn
	return nil
}

// Read, Write and Close are what godbus needs of a connection. It writes each
// message as a whole.
func (b *menuBus) Read(p []byte) (int, error) { return b.raw.Read(p) }
func (b *menuBus) Close() error               { return b.raw.Close() }

func (b *menuBus) Write(p []byte) (int, error) {
	if b.keep(p) {
		return len(p), nil
	}
	n, err := b.raw.Write(p)
	b.order.written(p)
	return n, err
}

// keep holds a message back that says that the menu has changed, in place of an
// earlier one that says the same.
func (b *menuBus) keep(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held || typeOf(p) != dbus.TypeSignal {
		return false
	}
	head := headersOf(p)
	for i, signal := range menuNews {
		if hasHeader(head, signal) && hasHeader(head, menuPath) {
			b.late[i] = append(b.late[i][:0], p...)
			return true
		}
	}
	return false
}

func (b *menuBus) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = true
}

func (b *menuBus) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = false
	for i, p := range b.late {
		if len(p) > 0 {
			_, _ = b.raw.Write(p) // when the bus is gone, so is the host
		}
		b.late[i] = p[:0]
	}
}

// abandonAfter is what the bus is given to take what is said at the end.
const abandonAfter = time.Second

// abandon: a write that is stuck ends by the deadline, and who waits for an answer
// when the socket is closed.
func (b *menuBus) abandon() {
	_ = b.raw.SetWriteDeadline(time.Now().Add(abandonAfter))
	time.AfterFunc(abandonAfter, func() { _ = b.raw.Close() })
}

func (b *menuBus) done() <-chan struct{} { return b.conn.Context().Done() }

// typeOf is a message's type (D-Bus specification, "Message Format"). The handshake before has none.
func typeOf(p []byte) dbus.Type {
	if len(p) < 16 || p[0] != 'l' && p[0] != 'B' {
		return 0
	}
	return dbus.Type(p[1])
}

// headersOf gives the bytes of a message's header fields. It isn't decoded: that
// would cost as much as making it did.
func headersOf(p []byte) []byte {
	order := binary.ByteOrder(binary.LittleEndian)
	if p[0] == 'B' {
		order = binary.BigEndian
	}
	return p[16:min(uint64(len(p)), 16+uint64(order.Uint32(p[12:16])))]
}

// hasHeader says that a string ends a field. None of the two can end another's: paths
// begin with a slash, and no name of a signal that systray sends ends with one of ours.
func hasHeader(head []byte, s string) bool { return bytes.Contains(head, append([]byte(s), 0)) }

// menuOrder lets a question about the menu in when the one before has been answered.
type menuOrder struct {
	mu     sync.Mutex
	serial uint32        // of the question that is open
	done   chan struct{} // closed when its answer is written; nil when none is open
}

// menuPatience is how long an answer is waited for. All come at once.
const menuPatience = 100 * time.Millisecond

// asked sees each message that comes, before it is dispatched.
func (o *menuOrder) asked(m *dbus.Message) {
	if m.Type != dbus.TypeMethodCall || m.Flags&dbus.FlagNoReplyExpected != 0 || m.Headers[dbus.FieldInterface].Value() != menuInterface {
		return
	}
	o.mu.Lock()
	before := o.done
	o.mu.Unlock()
	if before != nil {
		late := time.NewTimer(menuPatience)
		defer late.Stop()
		select {
		case <-before:
		case <-late.C:
		}
	}
	o.mu.Lock()
	o.serial, o.done = m.Serial(), make(chan struct{})
	o.mu.Unlock()
}

// written sees each message after it was written.
func (o *menuOrder) written(p []byte) {
	if t := typeOf(p); t != dbus.TypeMethodReply && t != dbus.TypeError {
		return
	}
	m, err := dbus.DecodeMessage(bytes.NewReader(p))
	if err != nil {
		return
	}
	serial, _ := m.Headers[dbus.FieldReplySerial].Value().(uint32)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done != nil && serial == o.serial {
		close(o.done)
		o.done = nil
	}
}
