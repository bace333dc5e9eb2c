package devserver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"intermission/platform"
	"intermission/restart/faultpoint"
)

// phase is what the readiness call tells.
type phase int32

const (
	starting phase = iota // 503
	ready                 // 200
	broken                // 500: boot failed; the process stays and keeps its lock
	stopping              // 503
)

// server is one incarnation.
type server struct {
	set      settings
	self     registration
	password string
	stdout   io.Writer
	stderr   io.Writer
	abort    func() // ends the process without grace

	phase  atomic.Int32
	store  *store // set before phase is ready
	ids    identifiers
	events bus
	quit   chan struct{} // closed when the API has asked for a stop
	once   sync.Once

	work       context.Context // ends, with errShutdown, when sessions must stop
	stopWork   context.CancelCauseFunc
	background sync.WaitGroup // everything that runs beside the HTTP server

	mu      sync.Mutex
	closed  bool                  // no further execution may start
	running map[string]*execution // by session
	asks    []*ask
	streams map[net.Conn]struct{} // connections that carry events
}

func newServer(set settings, password string, stdout, stderr io.Writer) *server {
	s := &server{set: set, password: password, stdout: stdout, stderr: stderr, quit: make(chan struct{}),
		running: map[string]*execution{}, streams: map[net.Conn]struct{}{}}
	s.self = registration{ID: uuid.NewString(), Version: set.version, PID: os.Getpid(), Password: password}
	s.work, s.stopWork = context.WithCancelCause(context.Background())
	s.abort = func() {
		fmt.Fprintln(stderr, "fatal: the script ends this server")
		os.Exit(1)
	}
	return s
}

func (s *server) complain(err error) { fmt.Fprintln(s.stderr, "Error:", err) }

// serve is the command `serve`.
func serve(ctx context.Context, set settings, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&set.service, "service", false, "")
	flags.IntVar(&set.port, "port", 0, "")
	flags.StringVar(&set.hostname, "hostname", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, serveUsage)
		return 0
	case err != nil || flags.NArg() > 0:
		fmt.Fprint(stderr, serveUsage)
		return 2
	}
	if set.faults.on("exit-at-once") {
		return fail(stderr, errors.New("cannot start: this server was told to exit at once"))
	}
	if set.faults.on("exit-silently") {
		return 1
	}
	if set.faults.on("big-output") {
		line := strings.Repeat("x", 1023) + "\n"
		for range set.faults.size("big-output", 4<<20) / len(line) {
			fmt.Fprint(stdout, line)
			fmt.Fprint(stderr, line)
		}
	}
	if !set.service {
		if set.password == "" {
			set.password = newPassword()
		}
		return bindAndRun(ctx, set, stdout, stderr)
	}
	lock, err := platform.TryServerLock(set.registration + ".lock")
	if errors.Is(err, platform.ErrLocked) {
		return 0 // a server is up: the real one says nothing
	}
	if err != nil {
		return fail(stderr, err)
	}
	defer lock.Unlock() //nolint:errcheck // it ends with the process at the latest
	faultpoint.At(faultpoint.ServerLocked)
	config, err := loadServiceConfig(set.config)
	if err != nil {
		return fail(stderr, err)
	}
	set.password = config.Password
	if set.port == 0 {
		set.port = config.Port
	}
	if set.hostname == "" {
		set.hostname = config.Hostname
	}
	if err := os.Chdir(set.home); err != nil {
		return fail(stderr, fmt.Errorf("cannot go to the home directory: %w", err))
	}
	return bindAndRun(ctx, set, stdout, stderr)
}

func bindAndRun(ctx context.Context, set settings, stdout, stderr io.Writer) int {
	if set.hostname == "" {
		set.hostname = "127.0.0.1"
	}
	port, exact := set.port, set.port != 0
	if !exact {
		port = basePort[set.kind]
	}
	if set.faults.on("port-taken") {
		return fail(stderr, fmt.Errorf("ServeError: cannot listen on port %d: address already in use", port))
	}
	l, err := listen(set.hostname, port, exact)
	if err != nil {
		return fail(stderr, err)
	}
	return newServer(set, set.password, stdout, stderr).run(ctx, l)
}

// run serves until it is told to stop, and gives the exit status.
func (s *server) run(ctx context.Context, l net.Listener) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Reset(syscall.SIGHUP) // ends the process, without grace

	s.self.URL = listenURL(l)
	if s.set.service {
		if err := s.self.publish(s.set.registration); err != nil {
			_ = l.Close()
			return fail(s.stderr, err)
		}
		faultpoint.At(faultpoint.ServerRegistered)
	}
	web := s.web()
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	fmt.Fprintf(s.stdout, "opencode server listening on %s\n", s.self.URL)
	s.background.Go(s.boot)
	replaced := make(chan struct{})
	if s.set.service {
		s.background.Go(func() { s.keepRegistration(replaced) })
	}

	code := s.await(ctx, signals, replaced)
	s.shutdown(web)
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		s.complain(err)
	}
	return code
}

// await returns, with the exit status, when there is a reason to stop.
func (s *server) await(ctx context.Context, signals <-chan os.Signal, replaced <-chan struct{}) int {
	ended := ctx.Done()
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGQUIT { // not graceful: dies by a signal, as the real one does
				if self, err := os.FindProcess(os.Getpid()); err == nil {
					_ = self.Kill()
				}
				continue
			}
			if !s.set.faults.on("ignore-term") {
				return 130
			}
		case <-ended: // by a signal too: the command line has caught it first
			if !s.set.faults.on("ignore-term") {
				return 130
			}
			ended = nil
		case <-s.quit:
			return 0
		case <-replaced:
			return 0
		}
	}
}

// boot opens the database and, in service mode, resumes what it finds, once the
// server has been ready for a moment.
func (s *server) boot() {
	if !s.pause(s.set.bootDelay) {
		return
	}
	var found leftovers
	st, err := openStore(s.work, s.set.database, s.set.kind)
	if err == nil {
		s.store = st
		found, err = s.leftovers()
	}
	if err != nil {
		s.complain(err)
		s.phase.CompareAndSwap(int32(starting), int32(broken))
		return
	}
	s.phase.CompareAndSwap(int32(starting), int32(ready))
	faultpoint.At(faultpoint.ServerReady)
	if s.set.service && s.pause(s.set.sweepDelay) {
		faultpoint.At(faultpoint.ServerSweeping)
		s.sweep(found)
		faultpoint.At(faultpoint.ServerSwept)
	}
}

// pause waits for d; false says that the server stops.
func (s *server) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.work.Done():
		return false
	}
}

// keepRegistration looks after the registration: the early kind writes it again
// when it was changed or removed, the claims kind gives way to whoever replaced it.
func (s *server) keepRegistration(replaced chan<- struct{}) {
	for s.pause(s.set.registrationInterval) {
		same, other := s.self.registered(s.set.registration)
		switch {
		case s.set.kind == claims && other:
			close(replaced)
			return
		case s.set.kind == early && !same:
			if err := s.self.publish(s.set.registration); err != nil {
				s.complain(err)
			}
		}
	}
}

// shutdown stops gracefully: event streams are reset first, then every turn is
// interrupted and what must survive is written, then the registration goes.
func (s *server) shutdown(web *http.Server) {
	s.phase.Store(int32(stopping))
	s.resetStreams()
	faultpoint.At(faultpoint.ServerStopping)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	if d, ok := s.set.faults.duration("slow-stop"); ok {
		time.Sleep(d)
	}
	s.stopWork(errShutdown)
	s.background.Wait()
	if s.set.service {
		if err := s.self.unpublish(s.set.registration); err != nil {
			s.complain(err)
		}
	}
	faultpoint.At(faultpoint.ServerStopped)
	_ = web.Close()
	if s.store != nil {
		if err := s.store.close(); err != nil {
			s.complain(err)
		}
	}
}

// resetStreams breaks the event streams off with a TCP reset, as the real server does.
func (s *server) resetStreams() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.streams {
		resetConn(c)
	}
}

func resetConn(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
