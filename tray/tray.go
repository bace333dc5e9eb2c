// Package tray is the desktop half of Intermission: a menu of what is pending and
// at work, and notifications. It knows the supervisor only through its local API,
// and every act of it is also a command.
//
//	supervisor ── events ──▶ link ──┐
//	a click ── Action ──────────────┤             ┌──▶ Model ──▶ renderer ──▶ systray
//	an act has ended ── Done ───────┼──▶ Reduce ──┤
//	the system's entry changed ─────┤   (State)   ├──▶ actor: API, service, terminal, clipboard
//	a timer, the machine's wake ────┘             └──▶ notifier
//
// Reduce (state.go) and Model (model.go) are pure, and so is what decides about
// notifications (notices.go). The loop (loop.go) is their only edge: it hands
// them inputs, one at a time, and performs the effects. There is no timer but for
// the next moment at which a text would be out of date or a notification is due.
//
// What a click means can't change under it: an element carries an Action (session
// and time of its suspension) from its making to its removal, and Reduce acts only
// if the menu of the newest state still offers that very action.
package tray

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"time"

	"intermission/assets"
	"intermission/platform"
)

// Config is what Run needs of its surroundings.
type Config struct {
	Options
	Paths platform.Paths
	Self  string // absolute path of this program
	Log   *slog.Logger
}

// AlreadyRunningError says that this desktop session has a tray.
type AlreadyRunningError struct{}

func (AlreadyRunningError) Error() string {
	return "the tray is running already in this desktop session"
}

// StartAtLogin switches the start of the tray at login on or off, for the program
// self (an absolute path). On puts the tray into the applications menu too.
func StartAtLogin(self string, on bool) error {
	if !on {
		return trayEntry(self).Disable()
	}
	if err := trayEntry(self).Enable(); err != nil {
		return err
	}
	return trayEntry(self).InstallDesktopEntry(assets.LogoSVG())
}

// StartsAtLogin tells whether the tray is started at login. What can't be told is no.
func StartsAtLogin(self string) bool {
	on, err := trayEntry(self).Enabled()
	return err == nil && on
}

// trayEntry starts the tray at login.
func trayEntry(self string) platform.Autostart {
	return platform.Autostart{Name: "intermission-tray", Title: "Intermission", Comment: "Shows which AI sessions wait for your consent", Argv: []string{self, "tray"}}
}

// Run shows the tray until ctx ends, its user quits it, or the desktop session
// ends. It must be called on the main goroutine. It fails with platform.ErrNoDesktop
// where there is none, and with AlreadyRunningError beside another tray.
func Run(ctx context.Context, c Config) error {
	for _, dir := range []string{c.Paths.State, c.Paths.Log, c.Paths.Runtime} {
		if err := platform.EnsurePrivateDir(dir); err != nil {
			return err
		}
	}
	desktop, err := platform.OpenDesktop(ctx, c.Log)
	if err != nil {
		return fmt.Errorf("%w; start the tray in one, or do without it: intermission pending", err)
	}
	defer desktop.Close()
	lock, err := platform.TryLock(filepath.Join(c.Paths.Runtime, "tray-"+desktop.Key+".lock"))
	if errors.Is(err, platform.ErrLocked) {
		return AlreadyRunningError{}
	}
	if err != nil {
		return fmt.Errorf("cannot take the tray's lock: %w", err)
	}
	defer lock.Unlock() //nolint:errcheck // it ends with the process at the latest

	debug.SetGCPercent(50) // little is made anew, and the process lives for weeks
	ctx, cancel := context.WithCancel(ctx)
	t := &tray{
		Config: c, ctx: ctx, end: cancel,
		inputs:  make(chan Input),
		heard:   make(chan Input, 1),
		notices: make(chan platform.Notice, 16),
		state:   State{Options: c.Options, Now: time.Now()},
		actor:   newActor(c),
	}
	err = t.run(desktop)
	cancel()
	if !t.ended(leaving) {
		c.Log.Warn("something of the tray has not ended in time")
	}
	select {
	case <-desktop.Done():
		return nil // whatever failed, failed for want of it
	default:
	}
	if failed := t.failed.Load(); failed != nil {
		return *failed
	}
	return err
}

// leaving is how long what the tray has begun may take to end.
const leaving = 2 * time.Second

// ended waits for all workers, at most for so long.
func (t *tray) ended(within time.Duration) bool {
	done := make(chan struct{})
	go func() { // ends with the last worker, or the process
		t.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-time.After(within):
		return false
	}
}
