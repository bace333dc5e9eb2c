package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/opencode"
)

// launch adopts a living server; where none is, it parks, and starts one if spawn.
func (s *supervisor) launch(ctx context.Context, seq uint64, spawn bool) Input {
	r, _ := loadRecord(s.Paths.ServerRecord)
	faultpoint.At(faultpoint.StartRecord)
	in, ok, missing := s.prepare(ctx, r)
	if !ok {
		if in.Kind == InUnsafe && s.dataLock != nil {
			s.standGuard() // what can't be parked must not be resumed by another server
		}
		return in
	}
	adopted, err := s.takeOver(ctx, r)
	switch {
	case err == nil:
		if r.ID != "" && r.ID != adopted.ID && r.Ready {
			s.sweepProcesses(r) // of the one before, whose end nobody saw
		}
		s.standGuard() // until it is attended
		faultpoint.At(faultpoint.HandoverFound)
		if r.ID == adopted.ID || r.Mark != "" && r.Mark == adopted.Mark {
			r = record{} // that one it is
		}
		return s.begun(adopted, r, nil, nil, seq, InAdopted)
	case s.life.Err() != nil:
		return Input{Kind: InUnsafe, Reason: "the supervisor is ending"}
	case !errors.Is(err, opencode.ErrNone):
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	cause := restart.CauseParked
	if r.ID != "" {
		cause = restart.CauseCrash // its end was not seen, and it had no time to suspend
		if err := s.endRecorded(r); err != nil {
			return Input{Kind: InUnsafe, Reason: err.Error()}
		}
	}
	if err := s.parkLocked(r, cause); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	faultpoint.At(faultpoint.StartParked)
	if r.ID != "" {
		s.sweepProcesses(r)
		removeRecord(s.Paths.ServerRecord)
	}
	if missing != nil {
		return Input{Kind: InRefused, Reason: withAct(missing)}
	}
	if !spawn {
		return Input{Kind: InParked}
	}
	s.relieve()
	return s.spawn(ctx, seq)
}

// endRecorded ends the recorded server if it lives, although nothing leads to it
// any more: its registration and lock were removed. What it writes at its end must
// be there before we park. One whose files may be elsewhere is left alone.
func (s *supervisor) endRecorded(r record) error {
	if !r.Identity.Alive() {
		return nil
	}
	if err := s.placed(r); err != nil {
		return err
	}
	s.Log.Warn("the recorded server lives, unregistered; ending it", "pid", r.Identity.PID)
	// Who is told to leave meanwhile waits for this, and may not take longer than a manager waits.
	if left := platform.KillTree(s.life, []platform.Identity{r.Identity}, min(s.Config.Server.StopTimeout, leaveLimit)/2); len(left) > 0 {
		return fmt.Errorf("the server (pid %d) lives, is not registered, and can't be ended; look at it with ps", r.Identity.PID)
	}
	return nil
}

// locate finds the program, again when its file has changed. When it can't be
// found, the one of before still tells where its lock and database are: missing
// says why none can be started. While the recorded server lives, it is found as that
// one has it.
func (s *supervisor) locate(ctx context.Context, r record) (missing, err error) {
	s.mu.Lock()
	before, offered := s.install, s.offered != nil
	s.mu.Unlock()
	if before != nil && before.Fresh() && !offered {
		return nil, nil
	}
	install, err := s.unconfigured(), error(nil)
	if install == nil {
		install, err = s.findProgram(ctx)
	}
	switch {
	case err == nil && s.Fault != nil:
		missing = &faultyError{s.Fault}
	case err == nil:
		s.Log.Info("found", "program", install.Program, "version", install.Version, "generation", install.Generation)
	case before != nil:
		missing, install = err, before
	default:
		if install = loadProgram(s.Paths.State, s.environ()); install == nil {
			return nil, err
		}
		missing = err
	}
	var next *opencode.Install
	if g := guise(install, r); g != nil && (missing == nil || s.Fault != nil) {
		s.Log.Info("another version than the program's runs", "version", g.Version, "generation", g.Generation)
		install, next = g, install
	}
	if missing == nil {
		if err := saveProgram(s.Paths.State, install); err != nil {
			s.Log.Warn("the program is not remembered", "error", err)
		}
	}
	s.mu.Lock()
	s.install, s.offered, s.lacking = install, next, missing != nil
	s.mu.Unlock()
	wake(s.located)
	s.watchRegistrations()
	return missing, nil //nolint:nilerr // what is missing is told apart
}

// unconfigured is the program that was found last, where the configuration that may
// name another can't be read: it tells where the server's lock and database are.
func (s *supervisor) unconfigured() *opencode.Install {
	if s.Fault == nil {
		return nil
	}
	return loadProgram(s.Paths.State, s.environ())
}

// faultyError says why no server is started with Options.Fault.
type faultyError struct{ fault error }

func (e *faultyError) Error() string {
	return fmt.Sprintf("no server is started: %v; mend that, and run: intermission service restart", e.fault)
}

// withAct words why the program can't be used. Some errors name their act themselves.
func withAct(err error) string {
	var missing *opencode.NotFoundError
	var unknown *opencode.UnsupportedVersionError
	var faulty *faultyError
	if errors.As(err, &missing) || errors.As(err, &unknown) || errors.As(err, &faulty) {
		return err.Error()
	}
	return err.Error() + "; mend that, and run: intermission start"
}

// prepare finds the program and opens what belongs to it: data directory, database
// and ledger. Without all of them no server may be started; with missing none can
// be, but what there is can be parked.
func (s *supervisor) prepare(ctx context.Context, r record) (in Input, ok bool, missing error) {
	s.settleEnvironment(ctx, r)
	missing, err := s.locate(ctx, r)
	if err != nil {
		return Input{Kind: InRefused, Reason: withAct(err)}, false, nil //nolint:nilerr // the input says it
	}
	// Before anything is opened, for what is open settles where everything is.
	if err := s.placed(r); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}, false, nil //nolint:nilerr // the input says it
	}
	in, ok = s.openAll()
	return in, ok, missing
}

func (s *supervisor) openAll() (Input, bool) {
	path, err := s.program().DatabasePath()
	if err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}, false
	}
	if s.dataLock == nil {
		// It may be the first start ever: the server would make this directory.
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return Input{Kind: InUnsafe, Reason: fmt.Sprintf("cannot make the server's data directory: %v", err)}, false
		}
		lock, err := platform.TryLockDir(filepath.Dir(path))
		if errors.Is(err, platform.ErrLocked) {
			return Input{Kind: InRefused, Reason: fmt.Sprintf("another intermission supervises %s; stop that one first", filepath.Dir(path))}, false
		}
		if err != nil {
			return Input{Kind: InUnsafe, Reason: fmt.Sprintf("cannot lock the server's data directory: %v", err)}, false
		}
		s.dataLock = lock
	}
	if in, ok := s.openDatabase(path, s.program().Generation); !ok {
		return in, false
	}
	if _, err := s.openLedger(); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}, false
	}
	return Input{}, true
}

// openDatabase opens the server's database, anew when the program is of another generation now.
func (s *supervisor) openDatabase(path string, generation opencode.Generation) (Input, bool) {
	s.mu.Lock()
	before := s.database
	s.mu.Unlock()
	if before != nil && before.Path() == path && before.Generation() == generation {
		return Input{}, true
	}
	db, err := opencode.OpenDatabase(path, generation)
	if err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}, false
	}
	s.mu.Lock()
	s.database = db
	s.mu.Unlock()
	if before != nil {
		if err := before.Close(); err != nil {
			s.Log.Warn("the server's former database did not close cleanly", "error", err)
		}
	}
	return Input{}, true
}

// takeOver finds a server that is alive, and waits for one that is starting or
// slow. It fails with opencode.ErrNone when none is, else with the reason why
// the living one can't be used, within Config's ready_timeout.
func (s *supervisor) takeOver(ctx context.Context, r record) (record, error) {
	if s.holdsLock() {
		return record{}, opencode.ErrNone
	}
	ctx, cancel := context.WithTimeout(ctx, s.Config.Server.ReadyTimeout)
	defer cancel()
	pause := 50 * time.Millisecond
	for {
		found, err := s.lookForLiving(ctx, r)
		if err == nil || errors.Is(err, opencode.ErrNone) {
			return found, err
		}
		incumbent := new(opencode.IncumbentError)
		if !errors.As(err, &incumbent) || incumbent.Kind != opencode.Healthy {
			s.standGuard() // it may end before it can be adopted
		}
		if incumbent.Kind == opencode.Unauthorized || incumbent.Kind == opencode.Healthy {
			return record{}, err // waiting changes neither a password nor a release channel
		}
		select {
		case <-ctx.Done():
			return record{}, err
		case <-time.After(pause): // it is between two states; nothing announces the next
		}
		pause = min(2*pause, time.Second)
	}
}

func (s *supervisor) lookForLiving(ctx context.Context, r record) (record, error) {
	if s.program().Generation == opencode.V1 {
		return lookForV1(ctx, r)
	}
	inc, err := s.program().Discover(ctx)
	if err == nil {
		return s.recordOf(inc, r)
	}
	if !errors.Is(err, opencode.ErrNone) {
		return record{}, err
	}
	lock, lockErr := platform.TryServerLock(s.program().LockPath())
	switch {
	case lockErr == nil:
		return record{}, errors.Join(err, lock.Unlock())
	case errors.Is(lockErr, platform.ErrLocked):
		return record{}, errors.New("an OpenCode server holds the lock, but is not registered; see who it is with: fuser " + s.program().LockPath())
	}
	return record{}, fmt.Errorf("cannot try the server's lock: %w", lockErr)
}

// lookForV1 tells whether the recorded server lives. v1 has no registration: ours
// is known by its identity, and by its taking the password that only we know.
func lookForV1(ctx context.Context, r record) (record, error) {
	if r.Generation != opencode.V1 || !r.Ready || !r.Identity.Alive() {
		return record{}, opencode.ErrNone
	}
	if err := opencode.Health(ctx, r.Incarnation); err != nil {
		return record{}, fmt.Errorf("the server (pid %d) is alive, but %w; end it with: intermission restart", r.Identity.PID, err)
	}
	return r, nil
}

// recordOf makes the record of a living server that was found registered.
func (s *supervisor) recordOf(inc opencode.Incarnation, old record) (record, error) {
	if old.ID == inc.ID && old.Ready {
		return old, nil
	}
	id, err := platform.Identify(inc.PID)
	if err != nil {
		return record{}, opencode.ErrNone
	}
	_, end := s.out.last(0, 0)
	r := record{Incarnation: inc, Identity: id, Ready: true, Since: s.cameBy(inc.ID, time.Now().UnixMilli()), Output: end}
	if !old.Ready && old.owns(inc.PID) {
		r.Spawned, r.Mark, r.Since, r.Output = old.Spawned, old.Mark, old.Since, old.Output
	}
	return r, nil
}

// cameBy gives when a server came that others have started, at most so late: it may have been at
// work long before we saw it, and end before it can be asked.
func (s *supervisor) cameBy(id string, latest int64) int64 {
	if at := s.program().RegisteredAt(id); !at.IsZero() {
		return min(at.UnixMilli(), latest)
	}
	return latest
}

// parkLocked parks while it holds the server's lock, which proves that none is up.
func (s *supervisor) parkLocked(r record, cause restart.Cause) error {
	path := s.program().LockPath()
	if path == "" {
		return s.park(r, cause, nil)
	}
	lock := s.heldLock()
	if lock == nil {
		// A server that was just ended lets go a moment after its process seems gone.
		ctx, cancel := context.WithTimeout(s.life, askTimeout)
		defer cancel()
		var err error
		lock, err = platform.WaitServerLock(ctx, path)
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("the server's lock is held; another server is starting")
		}
		if err != nil {
			return fmt.Errorf("cannot take the server's lock: %w", err)
		}
	}
	return s.parkUnder(lock, r, cause)
}

// begun records a living server, opens its page in the ledger and attends it. An adopted
// one may have followed before, whose end nobody saw.
func (s *supervisor) begun(r, before record, st *starting, g *guard, seq uint64, kind InputKind) Input {
	r.Places = s.surroundings().places()
	err := r.save(s.Paths.ServerRecord)
	if g != nil {
		g.record.Store(&r)
	}
	if err == nil {
		err = s.beginIncarnation(r, before, kind == InAdopted)
		faultpoint.At(faultpoint.StartBegun)
	}
	if err == nil {
		err = s.attend(r, st, g, seq)
	}
	if err != nil {
		in := Input{Kind: InUnsafe, Reason: err.Error()}
		if st != nil {
			return s.abandon(r, st, g, in)
		}
		return in
	}
	if kind == InAdopted {
		faultpoint.At(faultpoint.HandoverAdopted)
	}
	return Input{Kind: kind, Ours: r.ours() && !s.unsure}
}

// beginIncarnation opens the incarnation's page in the ledger. One that was
// adopted may have followed others whose end nobody saw.
func (s *supervisor) beginIncarnation(r, before record, adopted bool) error {
	ledger, _ := s.book()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), parkTimeout)
	defer cancel()
	inc := restart.Incarnation{ID: r.ID, Generation: string(r.Generation), Database: s.database.Path(), StartedAt: r.Since}
	if !adopted {
		return ledger.BeginIncarnation(ctx, inc)
	}
	client := opencode.Connect(r.Incarnation)
	defer client.Close()
	found := restart.Found{Asked: time.Now().UnixMilli(), Before: restart.Incarnation{
		ID: before.ID, Generation: string(before.Generation), Database: inc.Database, StartedAt: before.Since,
	}}
	var err error
	if found.Active, err = client.Active(ctx); err != nil {
		return fmt.Errorf("cannot ask the adopted server what is active: %w", err)
	}
	if err := ledger.Succeed(ctx, inc, found, s.database); err != nil {
		return err
	}
	// Its stop may have been announced by a supervisor that did not live to do it.
	return ledger.Unsuspend(ctx)
}
