//go:build linux

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"intermission/supervisor/control"
)

// handOver has the supervisor hand over, as the next one's installer does.
func (u *user) handOver(t testing.TB) error {
	t.Helper()
	client := control.Dial(u.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := client.HandOver(ctx)
	if err == nil && answer.PID != u.supervisor.pid() {
		t.Errorf("supervisor %d answers, %d runs", answer.PID, u.supervisor.pid())
	}
	return err
}

// sameServer wants the next supervisor to have adopted the server, with all that works in it.
func (u *user) sameServer(t *testing.T, before status, requests int, all ...work) {
	t.Helper()
	after := u.serving(t)
	if !after.Server.Adopted || after.Server.PID != before.Server.PID || after.Supervisor.PID == before.Supervisor.PID {
		t.Errorf("server %d was not adopted: %+v", before.Server.PID, after)
	}
	if pids := u.running(u.serverWords()...); !slices.Equal(pids, []int{before.Server.PID}) {
		t.Errorf("servers %v run, not only %d", pids, before.Server.PID)
	}
	eventually(t, "all sessions at work in the adopted server", func() error {
		var st status
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if len(st.Sessions.Active) != len(all) {
			return fmt.Errorf("active: %v", st.Sessions.Active)
		}
		return nil
	})
	for _, w := range all {
		if w.command != "" && len(u.running(w.command)) == 0 {
			t.Errorf("the tool %q was cut", w.command)
		}
	}
	if pending := u.pending(t); len(pending) > 0 {
		t.Errorf("pending under a server that lives on: %+v", pending)
	}
	u.quiet(t, requests) // exactly one execution of each
}

// handedOver replaces the supervisor under two sessions at work, three times: by one
// who asks, by twenty at once, and by one who is killed in the middle of it.
func handedOver(t *testing.T, u *user) {
	before := u.up(t)
	a := u.client(t)
	command := toolCommand()
	stream := begin(t, u.sandbox, u.bed, a, "stream", u.slow(900, 100), u.planner(), "")
	shell := begin(t, u.sandbox, u.bed, a, "shell", u.tool(command), "", command)
	requests := u.requests(t)

	began := time.Now()
	if err := u.handOver(t); err != nil {
		t.Fatal(err)
	}
	let := time.Since(began)
	u.supervisor = u.launch(t) // at once
	u.serving(t)
	t.Logf("the supervisor was gone after %v, the next one had adopted after %v", let, time.Since(began))
	u.sameServer(t, before, requests, stream, shell)

	before = u.serving(t)
	var all sync.WaitGroup
	answers := make(chan error, 20)
	for range 20 {
		all.Go(func() { answers <- u.handOver(t) })
	}
	all.Wait()
	close(answers)
	heard := 0
	for err := range answers {
		if err == nil {
			heard++
		}
	}
	if heard == 0 {
		t.Error("none of twenty heard of it")
	}
	u.supervisor.wait(t)
	u.sameServerAfter(t, before, requests, stream, shell)

	for _, after := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		before = u.serving(t)
		asked := make(chan error, 1)
		go func() { asked <- u.handOver(t) }()
		<-time.After(after) // any moment will do
		u.supervisor.end(t, syscall.SIGKILL)
		<-asked // whatever came of it
		u.sameServerAfter(t, before, requests, stream, shell)
	}
	u.down(t)
	u.up(t)
	u.wantPending(t, stream, shell)
	u.down(t)
}

// sameServerAfter starts the next supervisor, and wants that.
func (u *user) sameServerAfter(t *testing.T, before status, requests int, all ...work) {
	t.Helper()
	u.supervisor = u.launch(t)
	u.sameServer(t, before, requests, all...)
}

// handedOverInTheMiddle asks for it while the server starts, and while it stops: both come to their end first.
func handedOverInTheMiddle(t *testing.T, u *user) {
	u.supervisor = u.launch(t)
	eventually(t, "a supervisor", func() error { var st status; return u.ask(t, &st, "status") })
	if err := u.handOver(t); err != nil {
		t.Fatal(err)
	}
	u.supervisor.wait(t)
	pids := u.running(u.serverWords()...)
	st := u.up(t)
	if !st.Server.Adopted || !slices.Contains(pids, st.Server.PID) {
		t.Errorf("started %v, and then %+v", pids, st.Server)
	}
	w := begin(t, u.sandbox, u.bed, u.client(t), "stream", u.slow(900, 100), u.planner(), "")
	stopped := make(chan result, 1)
	go func() { stopped <- u.exec(t, program, "stop") }()
	eventually(t, "the stop", func() error {
		var st status
		if err := u.ask(t, &st, "status"); err != nil {
			return err
		}
		if st.Server.Desired != "stopped" {
			return errors.New("not yet")
		}
		return nil
	})
	if err := u.handOver(t); err != nil {
		t.Fatal(err)
	}
	u.supervisor.wait(t)
	<-stopped // it may have heard of the end of the supervisor instead
	u.noServer(t)
	u.supervisor = u.launch(t)
	eventually(t, "a supervisor", func() error { var st status; return u.ask(t, &st, "pending") })
	u.wantPending(t, w)
	u.down(t)
}

// inPlace has config.toml name a program that can be replaced, of this version.
func (u *user) inPlace(t *testing.T, version string) {
	t.Helper()
	at, script := u.path("opencode"), "#!/bin/sh\n[ \"$1\" = --version ] && echo "+version+" && exit\nexec"
	command := u.command()
	serve := slices.Index(command, "serve")
	for _, word := range command[:serve] {
		script += " '" + word + "'"
	}
	if err := os.WriteFile(at+".new", []byte(script+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
	words := ""
	for _, word := range command[serve:] {
		words += fmt.Sprintf(", %q", word)
	}
	generation := "v2"
	if serve == 1 {
		generation = "v1"
	}
	u.write(t, fmt.Sprintf("[server]\ngeneration = %q\ncommand = [%q%s]\n", generation, at, words), "config", "intermission", "config.toml")
}

// upgraded swaps the server's program: while a session is at work it is shown only,
// and while nothing is it is used at once.
func upgraded(t *testing.T, u *user) {
	first, second, third := "2.2.0", "2.2.1", "2.1.9"
	if u.command()[0] == opencodeV1 {
		first, second, third = "1.18.33", "1.18.34", "1.18.30"
	}
	u.inPlace(t, first)
	before := u.up(t)
	u.inPlace(t, second)
	eventually(t, "another server", func() error {
		if st := u.serving(t); st.Server.PID == before.Server.PID || st.Server.Available != "" || st.Server.Restarts != 0 {
			return fmt.Errorf("%+v", st.Server)
		}
		return nil
	})
	command := toolCommand()
	before = u.serving(t)
	shell := begin(t, u.sandbox, u.bed, u.client(t), "shell", u.tool(command), "", command)
	requests := u.requests(t)
	u.inPlace(t, third)
	eventually(t, "the version in place is shown", func() error {
		if st := u.serving(t); st.Server.Available != third {
			return fmt.Errorf("%+v", st.Server)
		}
		return nil
	})
	if err := u.handOver(t); err != nil {
		t.Fatal(err)
	}
	u.supervisor.wait(t)
	u.sameServerAfter(t, before, requests, shell)
	if st := u.serving(t); st.Server.Available != third {
		t.Errorf("the next supervisor shows %+v", st.Server)
	}
	if r := u.exec(t, program, "restart"); r.exit != 0 {
		t.Fatalf("restart: %v", r)
	}
	if st := u.serving(t); st.Server.PID == before.Server.PID || st.Server.Available != "" {
		t.Errorf("after a restart that the user wanted: %+v", st.Server)
	}
	u.wantPending(t, shell)
	u.down(t)
}

// TestAnotherGenerationInPlace puts v2 in the place of v1 while a session is at work in
// it: the next supervisor adopts the v1 server all the same, and what it was doing waits
// for consent once the user has stopped it.
func TestAnotherGenerationInPlace(t *testing.T) {
	t.Parallel()
	u := newUser(t, newV1)
	next := newClaims(t, u.sandbox).(*v2)
	at := u.path("opencode")
	place := func(script string) {
		if err := os.WriteFile(at+".new", []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	place(fmt.Sprintf(`exec '%s' "$@"`, opencodeV1))
	u.write(t, fmt.Sprintf("[server]\ncommand = [%q, \"serve\", \"--service\"]\n", at), "config", "intermission", "config.toml")
	before := u.up(t)
	if before.Server.Generation != "v1" {
		t.Fatalf("%+v", before.Server)
	}
	command := toolCommand()
	shell := begin(t, u.sandbox, u.bed, u.client(t), "shell", u.tool(command), "", command)
	requests := u.requests(t)
	place(fmt.Sprintf(`[ "$1" = --version ] && echo 2.2.0 && exit
exec '%s' devserver "$@"`, program))
	shown := func() error {
		if st := u.serving(t); st.Server.Available != "2.2.0" || st.Server.Generation != "v1" {
			return fmt.Errorf("%+v", st.Server)
		}
		return nil
	}
	eventually(t, "v2 is shown beside the v1 that runs", shown)
	if err := u.handOver(t); err != nil {
		t.Fatal(err)
	}
	u.supervisor.wait(t)
	u.sameServerAfter(t, before, requests, shell)
	eventually(t, "the next supervisor shows it too", shown)
	u.supervisor.end(t, syscall.SIGKILL)
	u.sameServerAfter(t, before, requests, shell)
	// It isn't started: the dev server can't take over a database of the real v1.
	if r := u.exec(t, program, "stop"); r.exit != 0 {
		t.Fatalf("stop: %v", r)
	}
	if alive(before.Server.PID) || len(u.running(command)) > 0 {
		t.Error("v1 lives on")
	}
	u.wantPending(t, shell)
	if n := next.requests(t); n > 0 || u.requests(t) != requests {
		t.Errorf("%d requests without consent", n)
	}
	u.supervisor.end(t, syscall.SIGTERM)
}
