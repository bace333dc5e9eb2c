package tray

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"intermission/assets"
	"intermission/platform"
	"intermission/supervisor/control"
)

// tray is the loop and what it holds.
type tray struct {
	Config
	ctx     context.Context
	end     context.CancelFunc
	inputs  chan Input
	heard   chan Input // one place: see hear
	notices chan platform.Notice
	workers sync.WaitGroup
	actor   actor
	desk    *desktopTray
	failed  atomic.Pointer[error] // why it ended by itself

	lookAgain func()      // at what starts at login
	asking    atomic.Bool // see askAgain

	// These belong to the loop.
	state    State
	renderer renderer
	timer    *time.Timer
}

// firstWord is how long the supervisor is waited for, so that the icon is right from the start.
const firstWord = 200 * time.Millisecond

func (t *tray) run(desktop *platform.Desktop) error {
	// systray writes what happens to it on the standard logger.
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(t.Log.Handler(), slog.LevelDebug).Writer())
	desk, err := newTray(func(a Action) { t.tell(Input{Click: &a}) })
	if err != nil {
		return err
	}
	t.desk, t.renderer.surface = desk, desk
	t.timer = time.NewTimer(0)
	defer t.timer.Stop()

	t.lookAgain = t.watchEntries()
	t.attendWakes(platform.HearPower)
	listener := &link{paths: t.Paths, log: t.Log, tell: t.hear}
	t.workers.Go(func() {
		if err := listener.run(t.ctx); err != nil {
			t.Log.Error("the tray will not see a supervisor", "error", err)
			t.hear(Input{Lost: &Loss{Reason: err.Error()}})
		}
	})
	t.workers.Go(t.notify)
	t.workers.Go(func() {
		desktop.KeepRegistered(t.ctx, fmt.Sprintf("org.kde.StatusNotifierItem-%d-1", os.Getpid()))
	})
	ready, drawn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(over)
	t.workers.Go(func() {
		select {
		case <-desktop.Done():
			t.Log.Info("the desktop session has ended")
			t.end()
		case <-desk.gone():
			t.fail(errors.New("the desktop has closed the tray's connection; start the tray again"))
		case <-t.ctx.Done():
		}
		desk.abandon()
		select {
		case <-ready: // before, there is nothing to quit
			desk.quit()
		case <-over:
		}
	})

	t.awaitFirst()
	if t.ctx.Err() != nil {
		return nil
	}
	menu, _ := Model(t.state)
	t.workers.Go(func() {
		select {
		case <-ready:
			t.draw()
			close(drawn)
			t.loop()
		case <-t.ctx.Done():
		}
	})
	return desk.run(menu, func() {
		close(ready)
		select { // hosts are shown the menu only when it is whole
		case <-drawn:
		case <-t.ctx.Done():
		}
	})
}

// attendWakes draws anew what is older by a sleep, and sends what became due in it:
// timers stand still meanwhile.
func (t *tray) attendWakes(hear func(context.Context, *slog.Logger, func(platform.PowerEvent))) {
	hear(t.ctx, t.Log, func(e platform.PowerEvent) {
		if e == platform.PowerWake {
			t.tell(Input{})
		}
	})
}

// fail ends the tray for a reason; the first one counts.
func (t *tray) fail(err error) {
	if t.failed.CompareAndSwap(nil, &err) {
		t.end()
	}
}

// tell hands an input to the loop, unless the tray ends.
func (t *tray) tell(in Input) {
	in.At = time.Now()
	select {
	case t.inputs <- in:
	case <-t.ctx.Done():
	}
}

// hear hands the loop what the supervisor says, in place of what it has not taken yet:
// the newest is the truth. Only the link calls it.
func (t *tray) hear(in Input) {
	in.At = time.Now()
	select {
	case <-t.heard:
	default:
	}
	t.heard <- in
}

// awaitFirst reduces what comes before there is a menu, until it is known whether
// there is a supervisor.
func (t *tray) awaitFirst() {
	late := time.After(firstWord)
	for t.state.Link == Connecting {
		select {
		case in := <-t.inputs:
			t.reduce(in)
		case in := <-t.heard:
			t.reduce(in)
		case <-late:
			return
		case <-t.ctx.Done():
			return
		}
	}
}

// askAgain asks for what is pending, when the menu is opened: a directory may be
// there again, which no event tells. What differs comes as a snapshot.
func (t *tray) askAgain() {
	if !t.asking.CompareAndSwap(false, true) {
		return
	}
	t.workers.Go(func() {
		defer t.asking.Store(false)
		client := control.Dial(t.Paths.LiveSocket())
		defer client.Close()
		if _, err := client.Pending(t.ctx); err != nil && t.ctx.Err() == nil {
			t.Log.Info("what is pending could not be asked for", "error", err)
		}
	})
}

// settled is when the tray surely has its connection to the desktop.
const settled = time.Second

func (t *tray) loop() {
	// Icon and title that change while systray connects are lost.
	again := time.After(settled)
	for {
		select {
		case in := <-t.inputs:
			t.reduce(in)
		case in := <-t.heard:
			t.reduce(in)
			if in.Lost != nil {
				t.lookAgain()
			}
		case <-t.timer.C:
			t.reduce(Input{At: time.Now()})
		case <-t.desk.opened():
			t.reduce(Input{At: time.Now()}) // ages: the machine may have slept
			t.lookAgain()
			t.askAgain()
		case <-again:
			t.renderer.forget()
		case <-t.ctx.Done():
		}
		if t.ctx.Err() != nil {
			return // of what is ready, select takes any
		}
		t.draw()
	}
}

func (t *tray) reduce(in Input) {
	var effects []Effect
	t.state, effects = Reduce(t.state, in)
	for _, e := range effects {
		t.perform(e)
	}
}

// draw shows the state, and sets the timer for when it looks different by itself.
func (t *tray) draw() {
	defer func() {
		if p := recover(); p != nil { // systray without its bus
			t.fail(fmt.Errorf("cannot show the tray: %v", p))
		}
	}()
	menu, next := Model(t.state)
	t.renderer.draw(menu)
	if due := t.state.notices.next(t.state); next.IsZero() || !due.IsZero() && due.Before(next) {
		next = due
	}
	t.timer.Stop()
	if !next.IsZero() {
		t.timer.Reset(max(time.Until(next), 0))
	}
}

func (t *tray) perform(e Effect) {
	switch {
	case e.Notice != nil:
		select {
		case t.notices <- *e.Notice:
		default:
			t.Log.Warn("a notification is left out: the desktop takes none", "title", e.Notice.Title)
		}
	case e.Do.Verb == Quit:
		t.end()
	default:
		act := *e.Do
		if act.Verb == OpenLog {
			act.Shown = t.state.Snapshot.Status.Server.State
		}
		t.workers.Go(func() {
			done := t.actor.do(t.ctx, act)
			t.Log.Info("clicked", "act", act.Verb, "session", act.Session, "outcome", done.Outcome, "reason", done.Reason)
			done.Action = *e.Do
			if done.Reason == "" && (act.Verb == Open || act.Verb == OpenLog) {
				t.pause() // until then further clicks on it are none
			}
			t.tell(Input{Done: &done})
			switch act.Verb {
			case LoginOn, LoginOff, SetUp:
				t.lookAgain()
			}
		})
	}
}

// pause waits for a second after a window was opened: impatience opens no more of them.
func (t *tray) pause() {
	select {
	case <-time.After(time.Second):
	case <-t.ctx.Done():
	}
}

// notify sends notifications, aside: a desktop may take its time for each.
func (t *tray) notify() {
	n := platform.NewNotifier(assets.Logo(), t.Log)
	defer n.Close()
	for {
		select {
		case notice := <-t.notices:
			if err := n.Send(t.ctx, notice); err != nil && t.ctx.Err() == nil {
				t.Log.Warn("a notification was not shown", "title", notice.Title, "error", err)
			}
		case of := <-n.Show():
			if err := t.actor.show(kind(of)); err != nil {
				t.Log.Warn("what a notification told of can't be shown", "error", err)
			}
			t.pause()
		case <-t.ctx.Done():
			return
		}
	}
}

// watchEntries tells what the system starts at login, now and whenever the tray's
// entry changes. again looks once more: of the service nothing tells, and it matters
// only where no supervisor runs.
func (t *tray) watchEntries() (again func()) {
	tray := trayEntry(t.Self)
	var looking sync.Mutex // what was read first is told first
	look := func() {
		looking.Lock()
		defer looking.Unlock()
		login, err := tray.Enabled()
		if err != nil {
			t.Log.Warn("whether the tray starts at login is not known", "error", err)
			return
		}
		service, err := t.actor.service.Status(t.ctx)
		if err != nil && t.ctx.Err() == nil {
			t.Log.Warn("whether a supervisor is set up is not known", "error", err)
		}
		t.tell(Input{Entries: &Entries{Login: login, Installed: service.Installed}})
	}
	t.workers.Go(look)
	if err := tray.Watch(t.ctx, look); err != nil {
		t.Log.Warn("changes of what starts at login won't be seen", "error", err)
	}
	return func() { t.workers.Go(look) }
}
