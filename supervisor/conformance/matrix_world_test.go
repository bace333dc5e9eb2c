//go:build linux

package conformance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"intermission/restart"
	"intermission/supervisor/control"
)

// triedProgram builds, once, the program whose fault points ask.
var triedProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "matrix")
	if err != nil {
		return "", err
	}
	leftover = append(leftover, dir)
	name := filepath.Join(dir, "intermission")
	build := exec.Command("go", "build", "-trimpath", "-tags", "faultpoints", "-o", name, ".")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build intermission: %w\n%s", err, out)
	}
	return name, nil
})

// world is one user with a supervisor and a dev server that stop at their fault
// points. Its acts fail when something is killed under them, and then say nothing: what
// counts is what is true afterwards.
type world struct {
	*sandbox
	*v2
	c       *controller
	t       testing.TB
	program string

	mu         sync.Mutex
	supervisor *process
	killed     map[*process]bool
	prompts    map[string]int // by session: so often it was, or may have been, prompted
	sessions   []string
}

func newWorld(t testing.TB, kind string, resumed string) *world {
	t.Helper()
	tried, err := triedProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir := "/dev/shm" // where a disk that others keep busy delays nothing
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		dir = ""
	}
	s := newSandboxIn(t, dir)
	table := map[string]string{"claims": "session_v2", "early": "session"}[kind]
	w := &world{sandbox: s, v2: newV2(s, kind, table), t: t, program: tried, killed: map[*process]bool{}, prompts: map[string]int{}}
	w.goOn(resumed)
	s.env = append(s.env,
		"INTERMISSION_FAULTPOINTS="+s.path("points"),
		"INTERMISSION_DEVSERVER_SWEEP_DELAY=600ms", // from its lock to its sweep the real one takes more than 1.5 s
		"INTERMISSION_DEVSERVER_FAULT=@"+s.path("faults"))
	s.write(t, fmt.Sprintf("[server]\ncommand = [%q, \"devserver\", \"serve\", \"--service\"]\nready_timeout = \"15s\"\nstop_timeout = \"6s\"\n[resume]\nconcurrency = 2\n", tried),
		"config", "intermission", "config.toml")
	w.c = newController(t, s.path("points"), w.strike)
	t.Cleanup(func() {
		w.endAll(t) // before the controller, at which they may wait
		if t.Failed() || os.Getenv("INTERMISSION_MATRIX_TELL") != "" {
			w.c.mu.Lock()
			defer w.c.mu.Unlock()
			for _, line := range w.c.story {
				t.Log(line)
			}
		}
	})
	return w
}

// launch starts a supervisor, unless one runs.
func (w *world) launch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.supervisor != nil && !closed(w.supervisor.done) {
		return
	}
	w.judgeEnd()
	w.supervisor = w.start(w.t, nil, w.program, "run")
	w.c.tell("supervisor %d starts", w.supervisor.pid())
}

// judgeEnd holds that a supervisor that nobody killed has ended in order. w.mu is held.
func (w *world) judgeEnd() {
	p := w.supervisor
	if p == nil || w.killed[p] {
		return
	}
	switch code := p.cmd.ProcessState.ExitCode(); code {
	case 0, 75: // handed over
	default:
		w.c.violate("supervisor %d ended by itself: %v", p.pid(), p.cmd.ProcessState)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// killSupervisor is kill -9, and waits for its end.
func (w *world) killSupervisor() {
	w.mu.Lock()
	p := w.supervisor
	if p != nil && !closed(p.done) {
		w.killed[p] = true
		_ = p.cmd.Process.Kill() // gone is as good
	}
	w.mu.Unlock()
	if p != nil {
		<-p.done
	}
}

// killServers is kill -9 of every server, also of one that has only just been started.
func (w *world) killServers() {
	pids := w.running(w.program, "serve", "--service")
	w.c.killed(pids)
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // gone is as good
	}
	w.c.tell("servers %v are killed", pids)
}

// foreigner starts the service as a TUI does, and waits until it has the lock, or has
// met it held and ended.
func (w *world) foreigner() {
	w.c.mu.Lock() // until it is known to be one
	p := w.start(w.t, nil, w.program, "devserver", "serve", "--service")
	w.c.foreigners[p.pid()] = true
	w.c.mu.Unlock()
	has := w.c.await(10*time.Second, p.done, func() bool {
		for _, s := range w.c.servers {
			if s.pid == p.pid() {
				return true
			}
		}
		return false
	})
	w.c.tell("foreign server %d has the lock: %v", p.pid(), has)
}

// strike does what a fault does.
func (w *world) strike(i *injection) {
	if i.victim == comesForeign {
		w.foreigner()
		return
	}
	if i.victim != hitServer {
		w.killSupervisor()
	}
	if i.victim != hitSupervisor {
		w.killServers()
	}
	if i.victim != hitServer && !i.later {
		w.launch()
	}
}

// actPatience bounds an act of the user's.
const actPatience = 12 * time.Second

// ask calls the supervisor.
func (w *world) call(what string, f func(context.Context, *control.Client) error) {
	client := control.Dial(w.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), actPatience)
	defer cancel()
	err := f(ctx, client)
	w.c.tell("%s: %v", what, err)
}

// begin makes a session and sets it to work.
func (w *world) begin(directive string) {
	a, err := w.connect()
	if err != nil {
		w.c.tell("no server to begin a session in: %v", err)
		return
	}
	dir := w.path("home", "project")
	_ = os.Mkdir(dir, 0o700) // or it is there
	id, err := w.create(a, dir)
	if err != nil {
		w.c.tell("a session can't be made: %v", err)
		return
	}
	w.mu.Lock()
	w.sessions = append(w.sessions, id)
	w.mu.Unlock()
	w.instruct(id, directive)
}

// instruct prompts a session. Whether it arrived doesn't matter: it counts as once.
func (w *world) instruct(id, directive string) {
	a, err := w.connect()
	if err != nil {
		return
	}
	w.mu.Lock()
	w.prompts[id]++
	w.mu.Unlock()
	w.c.tell("prompt %s %s: %v", id, directive, w.prompt(a, id, "Please "+directive, ""))
}

// session gives one of those that were made; "" for none.
func (w *world) session(n int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sessions) == 0 {
		return ""
	}
	return w.sessions[n%len(w.sessions)]
}

func (w *world) stop() {
	w.call("stop", func(ctx context.Context, c *control.Client) error { _, err := c.StopServer(ctx); return err })
}

func (w *world) restart() {
	w.call("restart", func(ctx context.Context, c *control.Client) error { _, err := c.RestartServer(ctx); return err })
}

func (w *world) handover() {
	w.call("handover", func(ctx context.Context, c *control.Client) error { _, err := c.HandOver(ctx); return err })
	w.mu.Lock()
	p := w.supervisor
	w.mu.Unlock()
	w.c.await(time.Second, p.done, func() bool { return false })
}

// decide calls f with one of what waits.
func (w *world) decide(what string, n int, f func(context.Context, *control.Client, control.Suspension) error) {
	w.call(what, func(ctx context.Context, c *control.Client) error {
		p, err := c.Pending(ctx)
		if err != nil || len(p.Pending) == 0 {
			return err
		}
		s := p.Pending[n%len(p.Pending)]
		w.c.tell("%s %s %d …", what, s.ID, s.SuspendedAt)
		return f(ctx, c, s)
	})
}

// resume consents to one suspension, by so many at once.
func (w *world) resume(n, atOnce int) {
	w.decide("resume", n, func(ctx context.Context, _ *control.Client, s control.Suspension) error {
		var all sync.WaitGroup
		for range atOnce {
			all.Go(func() {
				w.call("resume "+s.ID, func(ctx context.Context, c *control.Client) error {
					r, err := c.Resume(ctx, s.ID, s.SuspendedAt)
					w.c.tell("resume %s: %s %s", s.ID, r.Outcome, r.Reason)
					return err
				})
			})
		}
		all.Wait()
		return nil
	})
}

func (w *world) dismiss(n int) {
	w.decide("dismiss", n, func(ctx context.Context, c *control.Client, s control.Suspension) error {
		_, err := c.Dismiss(ctx, s.ID, s.SuspendedAt)
		return err
	})
}

func (w *world) interrupt(n int) {
	w.call("interrupt", func(ctx context.Context, c *control.Client) error {
		st, err := c.Status(ctx)
		if err != nil || len(st.Sessions.Working) == 0 {
			return err
		}
		s := st.Sessions.Working[n%len(st.Sessions.Working)]
		_, err = c.Interrupt(ctx, s.ID, s.StartedAt)
		return err
	})
}

// misbehave has the server fail at every resume from now on; "" ends that.
func (w *world) misbehave(fault string) { w.sandbox.write(w.t, fault, "faults") }

// rise starts the server, as often as it takes, and waits until it runs: not long, for
// there may be no supervisor.
func (w *world) rise() {
	client := control.Dial(w.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	err := poll(8*time.Second, func() (bool, error) {
		if w.down() {
			return true, nil
		}
		st, err := client.Status(context.Background())
		switch st.Server.State {
		case "running":
			return alive(st.Server.PID), nil
		case "stopped", "failed", "backoff", "blocked":
			_, err = client.StartServer(context.Background())
		}
		return false, err
	})
	w.c.tell("up: %v", err)
}

// down says that no supervisor runs.
func (w *world) down() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.supervisor == nil || closed(w.supervisor.done)
}

// settle has all faults end, and the supervisor and its server be up.
func (w *world) settle() error {
	w.c.arm()
	w.misbehave("")
	w.c.tell("settling")
	client := control.Dial(w.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	return poll(patience, func() (bool, error) {
		w.launch()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		st, err := client.Status(ctx)
		if err != nil {
			return false, err
		}
		err = fmt.Errorf("the server is %s: %s", st.Server.State, st.Server.Reason)
		switch st.Server.State {
		case "stopped", "failed", "backoff", "blocked":
			_, err = client.StartServer(ctx)
			return false, err
		case "running":
			if !alive(st.Server.PID) {
				return false, err
			}
		default:
			return false, err
		}
		w.c.mu.Lock()
		swept := false
		for _, s := range w.c.servers {
			swept = swept || s.pid == st.Server.PID && s.swept && !s.over
		}
		w.c.mu.Unlock()
		p, err := client.Pending(ctx)
		if err != nil || !swept {
			return false, fmt.Errorf("server %d has swept: %v (%w)", st.Server.PID, swept, err)
		}
		for _, s := range p.Pending {
			if s.State == restart.StateResuming {
				return false, fmt.Errorf("%s is being resumed", s.ID)
			}
		}
		return true, nil
	})
}

// awaitSweep keeps a server up until the injection at its sweep has struck.
func (w *world) awaitSweep(i *injection) {
	client := control.Dial(w.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	_ = poll(patience, func() (bool, error) { // that it was never reached is said by who asks for it
		w.c.mu.Lock()
		fired := i.fired
		w.c.mu.Unlock()
		if fired {
			return true, nil
		}
		w.launch()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if st, err := client.Status(ctx); err == nil && (st.Server.State == "stopped" || st.Server.State == "failed") {
			_, _ = client.StartServer(ctx)
		}
		return false, nil
	})
}
