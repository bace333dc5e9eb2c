package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/opencode"
)

// launch adopts a living server; where none is, it parks, and starts one if spawn.
func (s *supervisor) launch(ctx context.Context, seq uint64, spawn bool) Input {
	if in, ok := s.prepare(ctx); !ok {
		return in
	}
	r, _ := loadRecord(s.Paths.ServerRecord)
	adopted, err := s.takeOver(ctx, r)
	switch {
	case err == nil:
		if r.ID != "" && r.ID != adopted.ID && r.Ready {
			s.sweepProcesses(r) // of the one before, whose end nobody saw
		}
		return s.begun(adopted, nil, nil, seq, InAdopted)
	case s.life.Err() != nil:
		return Input{Kind: InUnsafe, Reason: "the supervisor is ending"}
	case !errors.Is(err, opencode.ErrNone):
		s.standGuard()
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	cause := restart.CauseParked
	if r.ID != "" {
		cause = restart.CauseCrash // its end was not seen, and it had no time to suspend
	}
	if err := s.parkLocked(r, cause); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	if r.ID != "" {
		s.sweepProcesses(r)
		removeRecord(s.Paths.ServerRecord)
	}
	if !spawn {
		return Input{Kind: InParked}
	}
	return s.spawn(ctx, seq)
}

// prepare finds the program and opens what belongs to it: ledger, data directory
// and database. Without all of them no server may be started.
func (s *supervisor) prepare(ctx context.Context) (Input, bool) {
	if _, err := s.openLedger(); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}, false
	}
	if s.install == nil || !s.install.Fresh() {
		install, err := opencode.Locate(ctx, opencode.Config{
			Command:    s.Config.Server.Command,
			Generation: s.Config.Server.Generation,
			Port:       s.Config.Server.Port,
			Env:        s.environ(),
		}, platform.LoginPath)
		if err != nil {
			return Input{Kind: InRefused, Reason: err.Error()}, false
		}
		s.mu.Lock()
		s.install = install
		s.mu.Unlock()
		s.watchRegistrations()
		s.Log.Info("found", "program", install.Program, "version", install.Version, "generation", install.Generation)
	}
	path, err := s.install.DatabasePath()
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
	if s.database == nil || s.database.Path() != path {
		db, err := opencode.OpenDatabase(path, s.install.Generation)
		if err != nil {
			return Input{Kind: InUnsafe, Reason: err.Error()}, false
		}
		s.mu.Lock()
		s.database = db
		s.mu.Unlock()
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
		select {
		case <-ctx.Done():
			return record{}, err
		case <-time.After(pause): // it is between two states; nothing announces the next
		}
		pause = min(2*pause, time.Second)
	}
}

func (s *supervisor) lookForLiving(ctx context.Context, r record) (record, error) {
	if s.install.Generation == opencode.V1 {
		return lookForV1(ctx, r)
	}
	inc, err := s.install.Discover(ctx)
	if err == nil {
		return s.recordOf(inc, r)
	}
	if !errors.Is(err, opencode.ErrNone) {
		return record{}, err
	}
	lock, lockErr := platform.TryServerLock(s.install.LockPath())
	switch {
	case lockErr == nil:
		return record{}, errors.Join(err, lock.Unlock())
	case errors.Is(lockErr, platform.ErrLocked):
		return record{}, errors.New("an OpenCode server holds the lock, but is not registered; see who it is with: fuser " + s.install.LockPath())
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
	r := record{Incarnation: inc, Identity: id, Ready: true, Since: time.Now().UnixMilli(), Output: end}
	if !old.Ready && old.owns(inc.PID) {
		r.Spawned, r.Mark, r.Since, r.Output = old.Spawned, old.Mark, old.Since, old.Output
	}
	return r, nil
}

// parkLocked parks while it holds the server's lock, which proves that none is up.
func (s *supervisor) parkLocked(r record, cause restart.Cause) error {
	path := s.install.LockPath()
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

// spawn starts the server and waits until it is ready. Whatever fails, nothing
// of it is left running, and what it left in its database is parked.
func (s *supervisor) spawn(ctx context.Context, seq uint64) Input {
	r := record{Since: time.Now().UnixMilli()}
	r.ID, r.Generation, r.Version = uuid.NewString(), s.install.Generation, s.install.Version
	r.Mark = r.ID
	_, r.Output = s.out.last(0, 0)
	port, in, ok := s.choosePort()
	if !ok {
		return in
	}
	r.Password = rand.Text() + rand.Text()
	if r.Generation == opencode.V1 {
		r.URL = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	argv, env := s.install.Spawn(r.ID, port, r.Password)
	// The intent first: should we die before the pid is known, the mark in the
	// environment finds what was started.
	if err := r.save(s.Paths.ServerRecord); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	child, err := platform.Start(platform.Spec{Argv: argv, Env: env, Dir: s.install.Home(), Output: s.out.file})
	if err != nil {
		removeRecord(s.Paths.ServerRecord)
		return Input{Kind: InRefused, Reason: fmt.Sprintf("cannot start %s: %v", argv[0], err)}
	}
	r.Identity, r.Spawned = child.Identity(), child.Identity()
	r.PID = r.Identity.PID
	if err := r.save(s.Paths.ServerRecord); err != nil {
		return s.abandon(r, newStart(s, child, r), nil, Input{Kind: InUnsafe, Reason: err.Error()})
	}
	return s.awaitReady(ctx, seq, r, newStart(s, child, r))
}

// choosePort gives v1's port: the configured one, or a free one.
func (s *supervisor) choosePort() (int, Input, bool) {
	if s.install.Generation != opencode.V1 {
		return 0, Input{}, true
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Config.Server.Port)))
	if err != nil {
		return 0, Input{Kind: InRefused, Reason: fmt.Sprintf("port %d is taken by another program; free it, or set another one as [server] port, then: intermission start", s.Config.Server.Port)}, false
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, Input{}, true
}

// starting is a server that was started and is not ready yet.
type starting struct {
	child *platform.Child
	ended chan struct{} // closed at the end of child
	exit  platform.Exit // valid after ended
	lines chan string   // what it writes
	stop  context.CancelFunc
}

func newStart(s *supervisor, child *platform.Child, r record) *starting {
	ctx, stop := context.WithCancel(s.life)
	st := &starting{child: child, ended: make(chan struct{}), lines: make(chan string), stop: stop}
	s.workers.Go(func() {
		st.exit = child.Wait()
		close(st.ended)
	})
	s.workers.Go(func() {
		_ = s.out.follow(ctx, r.Output, func(line string) error {
			select {
			case st.lines <- line:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return st
}

func (s *supervisor) awaitReady(ctx context.Context, seq uint64, r record, st *starting) Input {
	defer st.stop()
	ready, cancel := context.WithTimeout(ctx, s.Config.Server.ReadyTimeout)
	defer cancel()
	var g *guard
	inc, err := s.install.AwaitReady(ready, opencode.ReadySource{
		ID: r.ID, PID: r.PID, Password: r.Password, Since: time.UnixMilli(r.Since),
		Owns: r.owns, Lines: st.lines, Exited: st.ended, ExitCode: func() int { return st.exit.Code },
		// From now on it holds the lock, and may sweep before it is healthy.
		Registered: func() { g = s.guardOf(r, nil) },
	})
	if err != nil {
		return s.abandon(r, st, g, s.explain(ctx, r, st, err))
	}
	id, err := platform.Identify(inc.PID)
	if err != nil {
		return s.abandon(r, st, g, Input{Kind: InDied, Reason: "the server ended as soon as it was ready"})
	}
	ours := r.owns(inc.PID)
	r.Incarnation, r.Identity, r.Ready = inc, id, true
	if !ours {
		// Another server won the race for the lock, and ours gave up: take that one.
		r.Spawned, r.Mark = platform.Identity{}, ""
		return s.begun(r, nil, g, seq, InAdopted)
	}
	return s.begun(r, st, g, seq, InReady)
}

// begun records a living server, opens its page in the ledger and attends it.
func (s *supervisor) begun(r record, st *starting, g *guard, seq uint64, kind InputKind) Input {
	err := r.save(s.Paths.ServerRecord)
	if g != nil {
		g.record.Store(&r)
	}
	if err == nil {
		err = s.beginIncarnation(r, kind == InAdopted)
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
	return Input{Kind: kind, Ours: r.Mark != ""}
}

// beginIncarnation opens the incarnation's page in the ledger. One that was
// adopted may have followed others whose end nobody saw.
func (s *supervisor) beginIncarnation(r record, adopted bool) error {
	ledger, _ := s.book()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), parkTimeout)
	defer cancel()
	inc := restart.Incarnation{ID: r.ID, Generation: string(r.Generation), Database: s.database.Path(), StartedAt: r.Since}
	if !adopted {
		return ledger.BeginIncarnation(ctx, inc)
	}
	client := opencode.Connect(r.Incarnation)
	defer client.Close()
	active, err := client.Active(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask the adopted server what is active: %w", err)
	}
	if err := ledger.Succeed(ctx, inc, active, s.database); err != nil {
		return err
	}
	// Its stop may have been announced by a supervisor that did not live to do it.
	return ledger.Unsuspend(ctx)
}

// explain says why a server did not get ready.
func (s *supervisor) explain(ctx context.Context, r record, st *starting, err error) Input {
	select {
	case <-st.ended:
	default:
		if ctx.Err() != nil {
			return Input{Kind: InStopped}
		}
		return Input{Kind: InDied, Reason: fmt.Sprintf("the server was not ready within %s: %v", s.Config.Server.ReadyTimeout, err)}
	}
	tail, _ := s.out.last(20, r.Output)
	reason := describeExit(st.exit, tail)
	if port := s.Config.Server.Port; port != 0 && r.Generation == opencode.V1 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return Input{Kind: InRefused, Reason: fmt.Sprintf("port %d is taken by another program (%s); free it, or set another one as [server] port, then: intermission start", port, reason)}
		}
		l.Close()
	}
	return Input{Kind: InDied, Reason: reason}
}

// abandon ends a server that did not come to be attended, parks what it left, and reports in.
func (s *supervisor) abandon(r record, st *starting, g *guard, in Input) Input {
	st.stop()
	s.sweepProcesses(r)
	<-st.ended
	tail, _ := s.out.last(20, r.Output)
	s.setLastExit(st.exit, tail)
	if g != nil {
		select {
		case <-g.parked:
		case <-time.After(2 * parkTimeout):
			return Input{Kind: InUnsafe, Reason: "the server's lock is held although the server is gone; see who holds it with: fuser " + s.install.LockPath()}
		}
		if g.err != nil {
			return Input{Kind: InUnsafe, Reason: g.err.Error()}
		}
	} else if err := s.parkLocked(r, restart.CauseCrash); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	removeRecord(s.Paths.ServerRecord)
	return in
}

// environ is the server's environment: what we were given, and what the user configured.
func (s *supervisor) environ() []string {
	env := slices.Clone(s.Environ)
	for k, v := range s.Config.Server.Environment {
		env = append(env, k+"="+v) // of two entries with one name, the later counts
	}
	return env
}
