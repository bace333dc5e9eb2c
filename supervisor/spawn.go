package supervisor

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"intermission/platform"
	"intermission/restart"
	"intermission/restart/faultpoint"
	"intermission/supervisor/opencode"
)

// spawn starts the server and waits until it is ready. Whatever fails, nothing
// of it is left running, and what it left in its database is parked.
func (s *supervisor) spawn(ctx context.Context, seq uint64) Input {
	r := record{Since: time.Now().UnixMilli(), Places: s.surroundings().places()}
	r.ID, r.Generation, r.Version = uuid.NewString(), s.program().Generation, s.program().Version
	r.Mark, r.Program = r.ID, r.Version
	if err := s.out.open(); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	_, r.Output = s.out.last(0, 0)
	port, in, ok := s.choosePort()
	if !ok {
		return in
	}
	r.Password = rand.Text() + rand.Text()
	if r.Generation == opencode.V1 {
		r.URL = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	argv, env := s.program().Spawn(r.ID, port, r.Password)
	// The intent first: should we die before the pid is known, the mark in the
	// environment finds what was started.
	if err := r.save(s.Paths.ServerRecord); err != nil {
		return Input{Kind: InUnsafe, Reason: err.Error()}
	}
	faultpoint.At(faultpoint.StartIntent)
	child, err := platform.Start(platform.Spec{Argv: argv, Env: env, Dir: s.program().Home(), Output: s.out.handle()})
	if err != nil {
		removeRecord(s.Paths.ServerRecord)
		return Input{Kind: InRefused, Reason: fmt.Sprintf("cannot start %s: %v", argv[0], err)}
	}
	faultpoint.At(faultpoint.StartSpawned)
	r.Identity, r.Spawned = child.Identity(), child.Identity()
	r.PID = r.Identity.PID
	if err := r.save(s.Paths.ServerRecord); err != nil {
		return s.abandon(r, newStart(s, child, r), nil, Input{Kind: InUnsafe, Reason: err.Error()})
	}
	faultpoint.At(faultpoint.StartRecorded)
	return s.awaitReady(ctx, seq, r, newStart(s, child, r))
}

// choosePort gives v1's port: the configured one, or a free one.
func (s *supervisor) choosePort() (int, Input, bool) {
	if s.program().Generation != opencode.V1 {
		return 0, Input{}, true
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Config.Server.Port)))
	if err != nil {
		return 0, Input{Kind: InRefused, Reason: fmt.Sprintf("port %d is taken by another program; free it and run: intermission start, or set another one as [server] port in config.toml and run: intermission service restart", s.Config.Server.Port)}, false
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
	go func() { // ends with the child, which may outlive us
		st.exit = child.Wait()
		close(st.ended)
	}()
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
	spawned := r // r changes below
	s.workers.Go(func() { s.failFast(ready, cancel, spawned, st) })
	var g *guard
	inc, err := s.program().AwaitReady(ready, opencode.ReadySource{
		ID: r.ID, PID: r.PID, Password: r.Password, Since: time.UnixMilli(r.Since),
		Owns: r.owns, Lines: st.lines, Exited: st.ended, ExitCode: func() int { return st.exit.Code },
		// From now on it holds the lock, and may sweep before it is healthy.
		Registered: func() {
			g = s.guardOf(r, nil)
			faultpoint.At(faultpoint.StartRegistered)
		},
	})
	if err != nil {
		return s.abandon(r, st, g, s.explain(ctx, r, st, err))
	}
	faultpoint.At(faultpoint.StartReady)
	id, err := platform.Identify(inc.PID)
	if err != nil {
		return s.abandon(r, st, g, Input{Kind: InDied, Reason: "the server ended as soon as it was ready"})
	}
	ours := r.owns(inc.PID)
	r.Incarnation, r.Identity, r.Ready = inc, id, true
	if !ours {
		// Another server won the race for the lock, and ours gave up: take that one.
		r.Spawned, r.Mark, r.Program, r.Since = platform.Identity{}, "", "", s.cameBy(inc.ID, r.Since)
		return s.begun(r, record{}, nil, nil, seq, InAdopted)
	}
	return s.begun(r, record{}, st, g, seq, InReady)
}

// failFast ends the wait for a server that exited, left no process behind, and
// leaves its lock free: nothing will register any more.
func (s *supervisor) failFast(ctx context.Context, give context.CancelFunc, r record, st *starting) {
	if !platform.FindsOrphans || s.program().LockPath() == "" {
		return
	}
	select {
	case <-st.ended:
	case <-ctx.Done():
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askTimeout / 4): // only while starting; nothing announces what doesn't come
		}
		if tree, err := platform.Tree(ctx, r.Spawned, r.marker()); err != nil || len(tree) > 0 {
			continue
		}
		if lock, err := platform.TryServerLock(s.program().LockPath()); err == nil {
			s.release(lock)()
			give()
			return
		}
	}
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
			return Input{Kind: InRefused, Reason: fmt.Sprintf("port %d is taken by another program (%s); free it and run: intermission start, or set another one as [server] port in config.toml and run: intermission service restart", port, reason)}
		}
		l.Close()
	}
	if portTaken.MatchString(strings.Join(tail, "\n")) {
		return Input{Kind: InRefused, Reason: reason + "; free the port, then: intermission start"}
	}
	return Input{Kind: InDied, Reason: reason}
}

// portTaken is how servers say that somebody else listens on their port.
var portTaken = regexp.MustCompile(`(?i)EADDRINUSE|address already in use|port \d+ is (already )?(in use|taken)`)

// abandon ends a server that did not come to be attended, parks what it left, and reports in.
func (s *supervisor) abandon(r record, st *starting, g *guard, in Input) Input {
	st.stop()
	s.sweepProcesses(r)
	if g != nil {
		s.workers.Go(func() { s.lose(g, st.ended) })
	}
	<-st.ended
	tail, _ := s.out.last(20, r.Output)
	s.setLastExit(st.exit, tail)
	if g != nil {
		select {
		case <-g.parked:
		case <-time.After(2 * parkTimeout):
			return Input{Kind: InUnsafe, Reason: "the server's lock is held although the server is gone; see who holds it with: fuser " + s.program().LockPath()}
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
