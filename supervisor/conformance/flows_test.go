//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestConformance runs the main job against every kind of server: two sessions at
// work, one streaming and one in a tool; an end; and then nothing executes until
// the user consents to one session, and to that one only.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			for _, end := range ends {
				t.Run(end.name, func(t *testing.T) {
					t.Parallel()
					mainJob(t, newUser(t, kind.make), end)
				})
			}
			for name, flow := range map[string]func(*testing.T, *user){
				"eight supervisors":       eightSupervisors,
				"twenty resumes":          twentyResumes,
				"went on elsewhere":       wentOnElsewhere,
				"killed after the resume": killedAfterResume,
				"interrupted":             interruptedByUser,
				"handed over":             handedOver,
				"handed over in an act":   handedOverInTheMiddle,
				"upgraded":                upgraded,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					flow(t, newUser(t, kind.make))
				})
			}
		})
	}
}

// ending is a way in which the server ends while sessions are at work.
type ending struct {
	name  string
	cause string
	saves bool // streamed text is kept, tools are ended by the server
	// do ends it, and leaves the supervisor running or not.
	do func(testing.TB, *user)
	// tool says that the session in a tool is the one to be resumed, not the streaming one.
	tool bool
}

var ends = []ending{
	{name: "SIGTERM to the supervisor", cause: "shutdown", saves: true, do: func(t testing.TB, u *user) { u.down(t) }},
	{name: "intermission stop", cause: "shutdown", saves: true, tool: true, do: stopAndStart},
	{name: "kill -9 of the server", cause: "crash", do: killServer},
	{name: "kill -9 of the supervisor", cause: "shutdown", saves: true, do: killSupervisor},
	{name: "kill -9 of both", cause: "crash", tool: true, do: killBoth},
}

// stopAndStart stops the server by command: what is pending is seen while it is
// down, and the wish outlives the supervisor.
func stopAndStart(t testing.TB, u *user) {
	if r := u.exec(t, program, "stop"); r.exit != 0 {
		t.Fatalf("stop: %v", r)
	}
	u.noServer(t)
	if n := len(u.pending(t)); n != 2 {
		t.Errorf("%d are pending while the server is stopped, not 2", n)
	}
	u.down(t)
	u.supervisor = u.launch(t)
	var st status
	eventually(t, "a supervisor that keeps its server stopped", func() error {
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if st.Server.State != "stopped" || st.Server.Desired != "stopped" {
			return fmt.Errorf("state %s, desired %s", st.Server.State, st.Server.Desired)
		}
		return nil
	})
	u.noServer(t)
	if r := u.exec(t, program, "start"); r.exit != 0 {
		t.Fatalf("start: %v", r)
	}
	u.serving(t)
}

// killServer kills it behind the supervisor's back, which starts another one.
func killServer(t testing.TB, u *user) {
	before := u.serving(t)
	kill(t, before.Server.PID)
	eventually(t, "another server", func() error {
		if st := u.serving(t); st.Server.PID == before.Server.PID || st.Server.Restarts == 0 {
			return fmt.Errorf("pid %d, %d restarts", st.Server.PID, st.Server.Restarts)
		}
		return nil
	})
}

// killSupervisor kills it under a server that lives on: the next one adopts it, and
// its sessions go on. Then it is stopped.
func killSupervisor(t testing.TB, u *user) {
	before := u.serving(t)
	u.supervisor.end(t, syscall.SIGKILL)
	after := u.up(t)
	if !after.Server.Adopted || after.Server.PID != before.Server.PID {
		t.Errorf("server %d was not adopted, but %+v", before.Server.PID, after.Server)
	}
	if pids := u.running(u.serverWords()...); !slices.Equal(pids, []int{before.Server.PID}) {
		t.Errorf("servers %v run, not only %d", pids, before.Server.PID)
	}
	if pending := u.pending(t); len(pending) > 0 {
		t.Errorf("pending under a server that lives on: %+v", pending)
	}
	eventually(t, "both sessions active in the adopted server", func() error {
		var st status
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if len(st.Sessions.Active) != 2 {
			return fmt.Errorf("active: %v", st.Sessions.Active)
		}
		return nil
	})
	u.down(t)
}

func killBoth(t testing.TB, u *user) {
	before := u.serving(t)
	u.supervisor.end(t, syscall.SIGKILL) // first, so that it starts no other server
	kill(t, before.Server.PID)
}

// mainJob is the product's promise from the outside.
func mainJob(t *testing.T, u *user, end ending) {
	u.up(t)
	a := u.client(t)
	command := toolCommand()
	stream := begin(t, u.sandbox, u.bed, a, "stream", u.slow(900, 100), u.planner(), "")
	shell := begin(t, u.sandbox, u.bed, a, "shell", u.tool(command), "", command)
	requests := u.requests(t)

	end.do(t, u)
	if !alive(u.supervisor.pid()) {
		u.up(t)
	}
	eventually(t, "the end of the tool's processes", func() error {
		if pids := u.running(command); len(pids) > 0 {
			return fmt.Errorf("pids %v", pids)
		}
		return nil
	})
	if end.saves && u.text(t, stream.id) == "" {
		t.Error("the streamed text is lost")
	}

	for start := range 3 {
		u.quiet(t, requests)
		checkPending(t, u, end, stream, shell)
		if start < 2 {
			u.down(t)
			u.up(t)
		}
	}
	resumed, dismissed := stream, shell
	if end.tool {
		resumed, dismissed = shell, stream
	}
	resumeOne(t, u, resumed, dismissed)
	dismissOther(t, u, resumed, dismissed)
}

// checkPending wants both sessions pending, each with what its user is shown.
func checkPending(t *testing.T, u *user, end ending, stream, shell work) {
	t.Helper()
	for i, p := range u.wantPending(t, stream, shell) {
		w := []work{stream, shell}[i]
		if p.State != "pending" || p.Cause != end.cause || p.Directory != w.directory {
			t.Errorf("%s is %s (%s) by %s in %s, not pending by %s in %s", w.marker, p.State, p.Reason, p.Cause, p.Directory, end.cause, w.directory)
		}
		if !strings.Contains(p.LastPrompt.Text, w.marker) {
			t.Errorf("the last prompt of %s is shown as %q", w.marker, p.LastPrompt.Text)
		}
		if w.command != "" && (p.LastTool == nil || p.LastTool.Name != u.toolName() || !strings.Contains(p.LastTool.Input, w.command)) {
			t.Errorf("the last tool of %s is shown as %+v", w.marker, p.LastTool)
		} else if inFlight := end.cause == "crash" || u.toolName() == "bash"; w.command != "" && inFlight && p.LastTool.Status != "running" {
			// v2 ends its tools with an error of their own; v1's dispose leaves one as if it were completed.
			t.Errorf("the last tool of %s was in flight, it is shown as %s", w.marker, p.LastTool.Status)
		}
	}
}

// resumeOne consents to one session: it executes once, with its agent, and nothing else does.
func resumeOne(t *testing.T, u *user, w, other work) {
	t.Helper()
	turns, others, agent := u.turns(t, w), u.turns(t, other), u.agent(t, w.id)
	suspended := u.wantPending(t, w, other)[0]
	r := u.resume(t, suspended)
	if r.exit != 0 || outcome(t, r) != "resumed" {
		t.Fatalf("resume: %v", r)
	}
	eventually(t, "the continuation", func() error {
		if n := u.turns(t, w); n == turns {
			return errors.New("it has not reached the model")
		}
		return nil
	})
	u.idle(t, u.client(t), w)
	if r := u.resume(t, suspended); r.exit != 4 || outcome(t, r) != "already" {
		t.Errorf("the second resume of one suspension: %v", r)
	}
	always(t, time.Second, "one continuation, and of one session", func() error {
		if n := u.turns(t, w); n != turns+1 {
			return fmt.Errorf("%d continuations", n-turns)
		}
		if n := u.turns(t, other); n != others {
			return fmt.Errorf("%d requests of the other session", n-others)
		}
		return nil
	})
	if got := u.agent(t, w.id); got != agent || (w.agent != "" && got != w.agent) {
		t.Errorf("it went on as agent %q, it had %q", got, agent)
	}
	u.wantPending(t, other)
}

// dismissOther settles the other session: it is never offered again, and all it had stays.
func dismissOther(t *testing.T, u *user, resumed, w work) {
	t.Helper()
	requests, history := u.requests(t), u.history(t, w.id)
	if len(history) == 0 {
		t.Fatal("there is no history to keep")
	}
	if r := u.exec(t, program, "dismiss", w.id, "--json"); r.exit != 0 {
		t.Fatalf("dismiss: %v", r)
	}
	u.wantPending(t)
	if r := u.exec(t, program, "dismiss", w.id, "--json"); r.exit != 4 {
		t.Errorf("the second dismiss of one suspension: %v", r)
	}
	u.down(t)
	u.up(t)
	u.wantPending(t)
	u.quiet(t, requests)
	if after := u.history(t, w.id); !slices.Equal(after, history) {
		t.Errorf("the history changed from\n%s\nto\n%s", strings.Join(history, "\n"), strings.Join(after, "\n"))
	}
	for _, w := range []work{resumed, w} {
		if busy, err := u.active(u.client(t), w.id, w.directory); busy || err != nil {
			t.Errorf("%s is active: %v, %v", w.marker, busy, err)
		}
	}
}
