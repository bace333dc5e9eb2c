package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"intermission/platform"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// upgradable is a bed whose program is a file that can be replaced: at, through a
// link in another directory. Its version is the first one.
func upgradable(t *testing.T, first string) (b *bed, at string) {
	t.Helper()
	b = newBed(t, nil)
	at = filepath.Join(b.dir, "versions", "now", "opencode")
	link := filepath.Join(b.dir, "bin", "opencode")
	for _, dir := range []string{filepath.Dir(at), filepath.Dir(link)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at, link); err != nil {
		t.Fatal(err)
	}
	put(t, at, first)
	b.o.Config.Server.Command[0] = link
	b.o.Policy = DefaultPolicy
	b.o.Policy.Quiet, b.o.Policy.Settle = 0, 50*time.Millisecond
	return b, at
}

// put puts a program of that version in place, at once.
func put(t *testing.T, at, version string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --version ] && echo %s && exit\nexec %s \"$@\"\n", version, self)
	if err := writeProgram(at+".new", []byte(script)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
}

// startRevealed starts the supervisor, and gives it.
func (b *bed) startRevealed() *supervisor {
	started := make(chan *supervisor, 1)
	b.o.reveal = func(s *supervisor) { started <- s }
	b.start()
	return <-started
}

// staysUp holds that an upgrade isn't due.
func (b *bed) staysUp(s *supervisor, first control.Status) {
	b.t.Helper()
	s.upgrade()
	if st := b.phase(Running); st.Server.Incarnation != first.Server.Incarnation || st.Server.Available == "" {
		b.t.Errorf("restarted: %+v", st.Server)
	}
}

// status waits until the status is as ok wants it.
func (b *bed) status(what string, ok func(control.Status) bool) (st control.Status) {
	b.t.Helper()
	b.until(what, func() bool {
		var err error
		st, err = b.client.Status(b.t.Context())
		return err == nil && ok(st)
	}, func() any { return st })
	return st
}

func TestAnUpgradeIsUsedAtOnceWhenNothingIsActive(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	b.start()
	first := b.phase(Running)
	if first.Server.Available != "" {
		t.Errorf("%+v", first.Server)
	}
	for _, version := range []string{"2.3.0", "2.1.0"} { // a downgrade is a change as well
		before := b.phase(Running)
		put(t, at, version)
		b.status("another incarnation", func(st control.Status) bool {
			return st.Server.State == "running" && st.Server.Incarnation != before.Server.Incarnation && st.Server.Available == ""
		})
		if r, ok := loadRecord(b.o.Paths.ServerRecord); !ok || r.Program != version {
			t.Errorf("%q runs", r.Program)
		}
	}
	if st := b.phase(Running); st.Server.Restarts != 0 || st.Server.Desired != "running" {
		t.Errorf("%+v", st.Server)
	}
}

func TestAnUpgradeWaitsForWhatIsActive(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	s := b.startRevealed()
	first := b.phase(Running)
	id := b.prompt("[[permission]]")
	b.atWork(id)
	put(t, at, "2.3.0")
	b.status("it is shown", func(st control.Status) bool { return st.Server.Available == "2.3.0" })
	b.staysUp(s, first)
	// By a supervisor that finds it so, too.
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	b.start()
	st := b.status("it is shown by the next one", func(st control.Status) bool { return st.Server.Available == "2.3.0" && len(st.Sessions.Active) == 1 })
	if st.Server.Incarnation != first.Server.Incarnation || !st.Server.Adopted {
		t.Errorf("%+v", st.Server)
	}
	if _, err := b.client.Interrupt(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	b.status("its use once the last session has ended", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation && st.Server.Available == ""
	})
}

func TestAnUpgradeWaitsForAPersonBetweenTwoPrompts(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	b.o.Policy.Quiet = time.Hour
	s := b.startRevealed()
	first := b.phase(Running)
	id := b.prompt("[[slow n=20 ms=20]]")
	b.atWork(id)
	b.status("its end", func(st control.Status) bool { return len(st.Sessions.Active) == 0 })
	put(t, at, "2.3.0")
	b.status("it is shown", func(st control.Status) bool { return st.Server.Available == "2.3.0" })
	b.staysUp(s, first)
	// A person who wants it gets it.
	if st, err := b.client.RestartServer(t.Context()); err != nil || st.Server.Available != "" || st.Server.Incarnation == first.Server.Incarnation {
		t.Errorf("%+v, %v", st.Server, err)
	}
}

// A consent that comes while the server is restarted for an upgrade hears so, and counts
// when it is given again.
func TestAConsentDuringAnUpgrade(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	b.o.Config.Server.Environment["INTERMISSION_DEVSERVER_FAULT"] = "slow-stop=2s"
	b.start()
	b.phase(Running)
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	if _, err := b.client.RestartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.waits(id)
	put(t, at, "2.3.0")
	b.phase(Stopping)
	var refused *control.Error
	if _, err := b.client.Resume(t.Context(), id, 0); !errors.As(err, &refused) || refused.Code != control.CodeRefused || !strings.Contains(refused.Message, "restarted to use OpenCode 2.3.0") {
		t.Errorf("%v", err)
	}
	b.status("the upgrade", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Available == ""
	})
	b.until("it is taken", func() bool {
		r, err := b.client.Resume(t.Context(), id, 0)
		return err == nil && r.Outcome == "resumed"
	}, func() any { return nil })
}

// A job in the background belongs to a session that is not active, and would be lost.
func TestAnUpgradeWaitsForBackgroundJobs(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	s := b.startRevealed()
	first := b.phase(Running)
	b.prompt("[[bgshell sleep 300]]")
	b.status("its end, and the job", func(st control.Status) bool {
		s.mu.Lock()
		db := s.database
		s.mu.Unlock()
		sweep, err := db.Sweep(t.Context())
		return err == nil && len(sweep.Claims) == 0 && len(sweep.Jobs) == 1 && len(st.Sessions.Active) == 0
	})
	put(t, at, "2.3.0")
	b.status("it is shown", func(st control.Status) bool { return st.Server.Available == "2.3.0" })
	b.staysUp(s, first)
}

// A desktop application brings a server of its own version: it is shown that they
// differ, and only a person may replace it, also after another supervisor took it over.
func TestAServerOfOthersIsNotUpgraded(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := platform.Start(platform.Spec{Argv: []string{self, "serve", "--service"}, Env: append(b.o.Environ, asServer+"=1", "INTERMISSION_DEVSERVER_VERSION=2.3.0"), Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	go foreign.Wait()
	differs := func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Adopted && st.Server.PID == foreign.Identity().PID && st.Server.Available != ""
	}
	s := b.startRevealed()
	first := b.status("it is adopted, and its version shown", differs)
	b.staysUp(s, first)
	put(t, at, "2.4.0")
	b.status("another one is shown", func(st control.Status) bool { return st.Server.Available == "2.4.0" })
	b.staysUp(s, first)
	if _, err := b.client.HandOver(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.handedOver()
	s = b.startRevealed()
	b.staysUp(s, b.status("it is adopted again", differs))
	st, err := b.client.RestartServer(t.Context())
	if err != nil || st.Server.PID == first.Server.PID || st.Server.Available != "" {
		t.Errorf("a person wants it: %+v, %v", st.Server, err)
	}
}

func TestAStoppedServerStaysStopped(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	b.start()
	b.phase(Running)
	if _, err := b.client.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, at, "2.3.0")
	if st := b.phase(Stopped); st.Server.Available != "" {
		t.Errorf("%+v", st.Server)
	}
	st, err := b.client.StartServer(t.Context())
	r, _ := loadRecord(b.o.Paths.ServerRecord)
	if err != nil || r.Program != "2.3.0" || st.Server.Available != "" {
		t.Errorf("%+v, %q runs, %v", st.Server, r.Program, err)
	}
}

// Installers remove before they write, rename directories, and write slowly.
func TestAProgramThatVanishesAndComesBack(t *testing.T) {
	t.Parallel()
	b, at := upgradable(t, "2.2.0")
	b.start()
	first := b.phase(Running)
	gone := filepath.Dir(at) + ".gone"
	if err := os.Rename(filepath.Dir(at), gone); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(at), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, broken := range []string{"", "#!/bin/sh\nexit 1\n"} {
		if err := writeProgram(at, []byte(broken)); err != nil {
			t.Fatal(err)
		}
	}
	if st := b.phase(Running); st.Server.Incarnation != first.Server.Incarnation || st.Server.Available != "" {
		t.Errorf("a broken program changes %+v", st.Server)
	}
	put(t, at, "2.3.0")
	b.status("its use", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	})
}

// The recorded server is of a generation whose lock and database are elsewhere than
// those of the program in place: it is found as it is.
func TestALivingServerIsFoundAsItWasStarted(t *testing.T) {
	id, err := platform.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	found := &opencode.Install{Version: "2.2.0", Generation: opencode.V2, Env: []string{"HOME=/h"}}
	alive := record{Incarnation: opencode.Incarnation{ID: "x", Generation: opencode.V1, Version: "1.18.33"}, Identity: id, Ready: true}
	if g := guise(found, alive); g == nil || g.Generation != opencode.V1 || g.Version != "1.18.33" || g.LockPath() != "" {
		t.Errorf("%+v", g)
	}
	dead := alive
	dead.Identity.Start += "0"
	same := alive
	same.Generation, same.Version = opencode.V2, "2.1.0"
	channel := same
	channel.Version = "0.0.0-dev-1"
	if guise(found, dead) != nil || guise(found, same) != nil || guise(found, record{}) != nil {
		t.Error("another guise without need")
	}
	if g := guise(found, channel); g == nil || g.LockPath() == found.LockPath() {
		t.Errorf("another channel: %+v", g)
	}
}

func TestReduceYields(t *testing.T) {
	running := State{Phase: Running, Wish: WishRunning, Seq: 4, Adopted: true}
	s, fx := Reduce(DefaultPolicy, running, Input{Kind: InUpgrade, Reason: "why"})
	if s.Phase != Stopping || !s.Again || !s.Yields || s.Reason != "why" || len(fx) != 1 || !fx[0].Yield {
		t.Fatalf("%+v %+v", s, fx)
	}
	busy := Input{Kind: InBusy, Seq: s.Seq}
	if next, fx := Reduce(DefaultPolicy, s, busy); next.Phase != Running || next.Again || next.Reason != "" || !next.Adopted || len(fx) > 0 {
		t.Errorf("given up: %+v %+v", next, fx)
	}
	for kind, want := range map[InputKind]State{
		InStop:    {Phase: Stopping, Wish: WishStopped},
		InRestart: {Phase: Stopping, Wish: WishRunning, Again: true},
		InLeave:   {Phase: Stopping, Wish: WishRunning, Leaving: true},
	} {
		meanwhile, _ := Reduce(DefaultPolicy, s, Input{Kind: kind})
		next, fx := Reduce(DefaultPolicy, meanwhile, busy)
		if next.Phase != want.Phase || next.Wish != want.Wish || next.Again != want.Again || next.Leaving != want.Leaving || len(fx) != 1 || fx[0].Kind != DoHalt || fx[0].Yield {
			t.Errorf("%s: %+v %+v", kind, next, fx)
		}
	}
	died, fx := Reduce(DefaultPolicy, s, Input{Kind: InDied, Seq: s.Seq})
	if died.Phase != Starting || len(fx) != 1 || fx[0].Kind != DoLaunch {
		t.Errorf("died while it gave up: %+v %+v", died, fx)
	}
	stopped := State{Phase: Running, Wish: WishStopped}
	if next, fx := Reduce(DefaultPolicy, stopped, Input{Kind: InUpgrade}); next.Phase != Running || len(fx) > 0 {
		t.Errorf("against the wish: %+v", next)
	}
}

// A session that begins in the middle makes the restart give up, and its server's end
// is heard of afterwards.
func TestASessionThatBeginsInTheMiddle(t *testing.T) {
	t.Parallel()
	b, _ := upgradable(t, "2.2.0")
	s := b.startRevealed()
	first := b.phase(Running)
	id := b.prompt("[[slow n=900 ms=50]]")
	b.atWork(id)
	s.report(Input{Kind: InUpgrade, Reason: "a test"})
	b.phase(Running)
	if st := b.phase(Running); st.Server.PID != first.Server.PID || len(st.Sessions.Active) != 1 || st.Sessions.Pending != 0 {
		t.Errorf("%+v", st)
	}
	signal(t, first.Server.PID, platform.Kill)
	st := b.status("its end is dealt with", func(st control.Status) bool {
		return st.Server.State == "running" && st.Server.Incarnation != first.Server.Incarnation
	})
	if st.Server.Restarts != 1 || st.Sessions.Pending != 1 {
		t.Errorf("%+v", st)
	}
}
