package platform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/godbus/dbus/v5"
)

const (
	// systemBus is where it listens (D-Bus specification, "Well-known message bus instances").
	systemBus = "unix:path=/var/run/dbus/system_bus_socket"
	// powerPatience bounds each conversation with the bus and with logind.
	powerPatience = 5 * time.Second
	// steadyAfter is how long a connection must have lasted for its loss to be worth
	// another try at once: a bus that is replaced is there already.
	steadyAfter = time.Second
)

func watchPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	go newPowerWatch(true, log, handle).run(ctx)
}

func hearPower(ctx context.Context, log *slog.Logger, handle func(PowerEvent)) {
	go newPowerWatch(false, log, handle).run(ctx)
}

func newPowerWatch(delays bool, log *slog.Logger, handle func(PowerEvent)) *powerWatch {
	return &powerWatch{logind: newLogind(delays), log: log, handle: handle, said: map[string]bool{}}
}

// powerWatch hears what logind announces, over connections to the system bus that may
// be lost. All of it is one goroutine's.
type powerWatch struct {
	*logind
	log    *slog.Logger
	handle func(PowerEvent)
	said   map[string]bool // faults that were told
}

// run listens until ctx ends. Nothing is polled: a bus that can't be had is tried
// again when its socket is made anew.
func (w *powerWatch) run(ctx context.Context) {
	defer w.releaseAll()
	address := os.Getenv("DBUS_SYSTEM_BUS_ADDRESS")
	if address == "" {
		address = systemBus
	}
	again := socketMade(ctx, address)
	var once <-chan time.Time
	for {
		began := time.Now()
		heard, err := w.listen(ctx, address)
		if ctx.Err() != nil {
			return
		}
		w.releaseAll() // nothing should wait for who doesn't hear of it
		w.complain(deaf+"the system bus", err)
		if heard && time.Since(began) > steadyAfter {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case _, open := <-again:
			if !open {
				return
			}
			once = time.After(steadyAfter) // it was made before anybody listened on it
		case <-once:
			once = nil
		}
	}
}

// deaf is what it means that something isn't there.
const deaf = "shutdown and sleep of the machine are not announced to us: sessions are suspended at the stop only. Missing is "

// complain says a fault once, until all is well again.
func (w *powerWatch) complain(what string, err error) {
	if w.said[what] {
		return
	}
	w.said[what] = true
	level := slog.LevelWarn
	if !w.delays { // who only listens misses little
		level = slog.LevelInfo
	}
	w.log.Log(context.Background(), level, what, "error", err)
}

// listen is one connection, until it is lost; heard says that it was had.
func (w *powerWatch) listen(ctx context.Context, address string) (heard bool, err error) {
	b, signals, err := dialSystemBus(ctx, address)
	if err != nil {
		return false, err
	}
	defer b.close()
	w.find(ctx, b)
	w.catchUp(ctx, b)
	for {
		if ctx.Err() != nil { // of what is ready, select takes any
			return true, ctx.Err()
		}
		select {
		case <-ctx.Done():
		case <-b.Context().Done():
			return true, errBusLost
		case s, open := <-signals:
			if !open {
				return true, errBusLost
			}
			w.hear(ctx, b, s)
		}
	}
}

var errBusLost = errors.New("the system bus has closed the connection")

// dialSystemBus connects, and subscribes to what logind says and to its coming and going.
func dialSystemBus(ctx context.Context, address string) (*bus, <-chan *dbus.Signal, error) {
	ctx, cancel := context.WithTimeout(ctx, powerPatience)
	defer cancel()
	b, err := dialBus(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	signals := make(chan *dbus.Signal, 16)
	b.Signal(signals)
	err = b.within(ctx, func() error {
		return errors.Join(
			b.AddMatchSignal(dbus.WithMatchSender(logindName), dbus.WithMatchObjectPath(logindPath), dbus.WithMatchInterface(logindManager)),
			b.AddMatchSignal(dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, logindName)),
		)
	})
	if err != nil {
		b.close()
		return nil, nil, fmt.Errorf("cannot subscribe to what logind says: %w", err)
	}
	return b, signals, nil
}

// hear takes one signal. Everybody on the system bus may send one to us: what
// doesn't come from logind itself, or from the bus, is nothing.
func (w *powerWatch) hear(ctx context.Context, b *bus, s *dbus.Signal) {
	if s.Sender == busName && s.Name == ownerChanged && len(s.Body) == 3 && s.Body[0] == logindName {
		if w.owner, _ = s.Body[2].(string); w.owner != "" {
			w.catchUp(ctx, b) // another one, that may have forgotten what was under way and who waits
		}
		return
	}
	if s.Sender != w.owner || s.Path != logindPath || len(s.Body) == 0 {
		return
	}
	begins, ok := s.Body[0].(bool)
	for _, k := range powerKinds {
		if ok && s.Name == logindManager+"."+k.signal {
			w.turn(ctx, b, k, begins)
		}
	}
}

// catchUp learns what logind has under way, and takes the locks: at first, and when
// logind or the bus was restarted.
func (w *powerWatch) catchUp(ctx context.Context, b *bus) {
	well := true
	for _, k := range powerKinds {
		begun, err := w.begun(ctx, b, k)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.complain(deaf+"logind", err)
			return
		case begun != w.announced[k.begins]:
			w.turn(ctx, b, k, begun)
		case !begun:
			well = w.hold(ctx, b, k) && well
		}
	}
	if well {
		clear(w.said)
	}
}

// turn passes on that something begins or is over. It begins when handle has
// returned; when it is over, the next one is already waited for meanwhile.
func (w *powerWatch) turn(ctx context.Context, b *bus, k powerKind, begins bool) {
	w.announced[k.begins] = begins
	if begins {
		release := w.lend(k)
		defer release()
		w.handle(k.begins)
		return
	}
	w.hold(ctx, b, k)
	w.handle(k.ends)
}

func (w *powerWatch) hold(ctx context.Context, b *bus, k powerKind) (held bool) {
	err := w.take(ctx, b, k)
	if err != nil && ctx.Err() == nil {
		w.complain("the machine's "+k.what+" won't wait for us", err)
	}
	return err == nil
}

// socketMade tells whenever the socket of a bus was made. It is closed where that
// can't be seen, and at the end of ctx.
func socketMade(ctx context.Context, address string) <-chan struct{} {
	made := make(chan struct{}, 1)
	path, isFile := strings.CutPrefix(address, "unix:path=")
	path, _, _ = strings.Cut(path, ",")
	path, err := dbus.UnescapeBusAddressValue(path)
	watcher, cannot := fsnotify.NewWatcher()
	if cannot == nil && (!isFile || err != nil || watcher.Add(filepath.Dir(path)) != nil) {
		cannot = errors.Join(errBusLost, watcher.Close())
	}
	if cannot != nil {
		close(made)
		return made
	}
	go func() {
		defer close(made)
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Errors:
				return
			case e := <-watcher.Events:
				if e.Name == path && e.Has(fsnotify.Create) {
					select {
					case made <- struct{}{}:
					default:
					}
				}
			}
		}
	}()
	return made
}
