package opencode

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// spawnedAs is a ReadySource whose process is this one, or not.
func spawnedAs(ours bool) (ReadySource, func(code int)) {
	exited, status := make(chan struct{}), 0
	source := ReadySource{
		ID: "inc-1", PID: os.Getpid(), Password: testPassword, Since: time.Now(),
		Owns:   func(pid int) bool { return ours && pid == os.Getpid() },
		Exited: exited, ExitCode: func() int { return status },
	}
	return source, func(code int) { status = code; close(exited) }
}

type ready struct {
	inc Incarnation
	err error
}

func await(ctx context.Context, in *Install, source ReadySource) <-chan ready {
	done := make(chan ready, 1)
	go func() {
		inc, err := in.AwaitReady(ctx, source)
		done <- ready{inc, err}
	}()
	return done
}

func result(t *testing.T, done <-chan ready) ready {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("AwaitReady does not return")
		return ready{}
	}
}

// slowV2 is healthy from the third request on.
func slowV2(t *testing.T) (inc Incarnation, asked *atomic.Int32) {
	asked = new(atomic.Int32)
	return serve(t, V2, func(w http.ResponseWriter, _ *http.Request) {
		status := 503
		if asked.Add(1) > 2 {
			status = 200
		}
		sayJSON(w, status, fmt.Sprintf(`{"healthy":true,"version":"2.2.0","pid":%d}`, os.Getpid()))
	}), asked
}

func TestAwaitReadyV2(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	if err := os.Remove(z.in.RegistrationDir()); err != nil { // it is made
		t.Fatal(err)
	}
	inc, _ := slowV2(t)
	source, _ := spawnedAs(true)
	var registered atomic.Int32
	source.Registered = func() { registered.Add(1) }
	done := await(t.Context(), z.in, source)
	poll(t, "the directory is there", func() bool { _, err := os.Stat(z.in.RegistrationDir()); return err == nil })
	z.put("service-other.json", "{")
	z.put("service.json", register(inc))
	if r := result(t, done); r.err != nil || r.inc.ID != inc.ID || r.inc.Password != testPassword {
		t.Errorf("got %v, %v", r.inc, r.err)
	}
	if n := registered.Load(); n != 1 {
		t.Errorf("the registration was told %d times", n)
	}
}

func TestAwaitReadyV2IgnoresWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]bool{"another's": false, "from before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := newZoo(t)
			inc, asked := slowV2(t)
			z.put("service.json", register(inc))
			source, _ := spawnedAs(old)
			if old {
				source.Since = time.Now().Add(time.Hour)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("time is over"))
			defer cancel()
			r := result(t, await(ctx, z.in, source))
			if r.err == nil || !strings.Contains(r.err.Error(), "has not registered") || !strings.Contains(r.err.Error(), "time is over") {
				t.Errorf("got %v, %v", r.inc, r.err)
			}
			if n := asked.Load(); n != 0 {
				t.Errorf("a server that isn't ours was asked %d times", n)
			}
		})
	}
}

func TestAwaitReadyV2AdoptsWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	z := newZoo(t)
	inc, asked := slowV2(t)
	z.put("service.json", register(inc))
	source, exit := spawnedAs(false)
	done := await(t.Context(), z.in, source)
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times before the exit", n)
	}
	exit(0)
	if r := result(t, done); r.err != nil || r.inc.ID != inc.ID {
		t.Errorf("got %v, %v", r.inc, r.err)
	}
}

func TestAwaitReadyEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	for _, generation := range []Generation{V1, V2} {
		z := newZoo(t)
		z.in.Generation = generation
		source, exit := spawnedAs(true)
		done := await(t.Context(), z.in, source)
		exit(1)
		if r := result(t, done); !errors.Is(r.err, ErrExited) {
			t.Errorf("%s: got %v", generation, r.err)
		}
	}
}

func TestAwaitReadySaysHowFarItCame(t *testing.T) {
	t.Parallel()
	failing := func(status int) func(*testing.T, Generation) Incarnation {
		return func(t *testing.T, g Generation) Incarnation {
			return serve(t, g, func(w http.ResponseWriter, _ *http.Request) { sayJSON(w, status, `{"healthy":true}`) })
		}
	}
	for name, c := range map[string]struct {
		server func(*testing.T, Generation) Incarnation
		want   HealthKind
	}{
		"boot failed":  {failing(500), BootFailed},
		"unauthorized": {failing(401), Unauthorized},
		"starting":     {failing(503), Transition},
	} {
		for _, generation := range []Generation{V1, V2} {
			t.Run(name+" "+string(generation), func(t *testing.T) {
				t.Parallel()
				z := newZoo(t)
				z.in.Generation = generation
				inc := c.server(t, generation)
				z.put("service.json", register(inc))
				source, _ := spawnedAs(true)
				lines := make(chan string, 1)
				lines <- "opencode server listening on " + inc.URL
				source.Lines = lines
				ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
				defer cancel()
				r := result(t, await(ctx, z.in, source))
				wantHealth(t, r.err, c.want)
				if want := "the server did not become ready: it "; !strings.HasPrefix(r.err.Error(), want) {
					t.Errorf("it says %q", r.err)
				}
			})
		}
	}
}

func TestAwaitReadyV1(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := serve(t, V1, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			sayPage(w)
			return
		}
		sayJSON(w, 200, `{"healthy":true,"version":"1.18.33"}`)
	})
	in := &Install{Generation: V1, Version: "1.18.33", Env: []string{"HOME=" + t.TempDir()}}
	source, _ := spawnedAs(true)
	lines := make(chan string)
	source.Lines = lines
	done := await(t.Context(), in, source)
	lines <- "Warning: something"
	lines <- ""
	if asked.Load() != 0 {
		t.Error("asked before it said where it listens")
	}
	lines <- "\x1b[0mopencode server listening on " + server.URL
	want := Incarnation{ID: "inc-1", Generation: V1, Version: "1.18.33", URL: server.URL, PID: os.Getpid(), Password: testPassword}
	if r := result(t, done); r.err != nil || r.inc != want {
		t.Errorf("got %+v, %v", r.inc, r.err)
	}
}

func TestAwaitReadyV1OutlivesItsOutput(t *testing.T) {
	t.Parallel()
	in := &Install{Generation: V1, Env: []string{"HOME=" + t.TempDir()}}
	source, exit := spawnedAs(true)
	lines := make(chan string)
	source.Lines = lines
	close(lines)
	done := await(t.Context(), in, source)
	exit(1)
	if r := result(t, done); !errors.Is(r.err, ErrExited) {
		t.Errorf("got %v", r.err)
	}
}

func TestWatchTellsOfAChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	changes, stop := watch(dir)
	defer stop()
	if err := os.WriteFile(filepath.Join(dir, "service.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changes:
	case <-time.After(5 * time.Second):
		t.Error("not told")
	}
	if changes, stop := watch(filepath.Join(dir, "nowhere")); changes != nil {
		t.Error("a watch on nothing")
	} else {
		stop()
	}
}
