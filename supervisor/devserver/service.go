package devserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"intermission/platform"
)

// How the real command line looks for its service: as its "ensure" does.
const (
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 2 * time.Second
	spawnAgain   = 5 * time.Second // a starter that met a held lock is tried again
	ensureFor    = 30 * time.Second
)

// service is the command `service start|stop|restart|status`. It starts servers
// beside whoever supervises them, as the real command does.
func service(ctx context.Context, set settings, args []string, stdout, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "opencode service start|stop|restart|status")
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, ensureFor)
	defer cancel()
	// The words before `service` lead to this command line.
	prefix := os.Args[:max(1, len(os.Args)-len(args))]
	var err error
	switch args[1] {
	case "status":
		r, alive := probe(ctx, set)
		if !alive {
			fmt.Fprintln(stdout, "stopped")
			return 1
		}
		fmt.Fprintf(stdout, "running at %s (pid %d, version %s)\n", r.URL, r.PID, r.Version)
		return 0
	case "start":
		err = ensure(ctx, set, prefix)
	case "stop":
		err = stopService(ctx, set)
	case "restart":
		if err = stopService(ctx, set); err == nil {
			err = ensure(ctx, set, prefix)
		}
	default:
		fmt.Fprintf(stderr, "unknown command %q\n", args[1])
		return 2
	}
	if err != nil {
		return fail(stderr, err)
	}
	return 0
}

// probe finds the registered server, and tells whether it is ready.
func probe(ctx context.Context, set settings) (registration, bool) {
	r, err := readRegistration(set.registration)
	if err != nil {
		return r, false
	}
	status, err := request1(ctx, r, "GET", "/api/"+set.health, nil)
	return r, err == nil && status == 200
}

func request1(ctx context.Context, r registration, method, path string, body any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL+path, bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth(username, r.Password)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// ensure starts the service unless it is up, and waits until it is ready.
func ensure(ctx context.Context, set settings, prefix []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var spawned time.Time
	for {
		if _, alive := probe(ctx, set); alive {
			return nil
		}
		if time.Since(spawned) > spawnAgain {
			spawned = time.Now()
			argv := append(append([]string{program}, prefix[1:]...), "serve", "--service")
			child, err := platform.Start(platform.Spec{Argv: argv, Env: os.Environ()})
			if err != nil {
				return err
			}
			go child.Wait() // reaps one that ends at once; the others outlive this command
		}
		if !wait(ctx, probeEvery) {
			return errors.New("cannot start the service: it did not become ready")
		}
	}
}

// stopService asks the registered server to stop and waits until its registration is gone.
func stopService(ctx context.Context, set settings) error {
	r, err := readRegistration(set.registration)
	if err != nil {
		return nil //nolint:nilerr // nothing is registered
	}
	if _, err := request1(ctx, r, "POST", "/api/service/stop", data{"instanceID": r.ID}); err != nil {
		return nil //nolint:nilerr // a stale registration: nobody is there
	}
	for {
		now, err := readRegistration(set.registration)
		if err != nil || now.ID != r.ID {
			return nil //nolint:nilerr // it is gone, or another's
		}
		if !wait(ctx, probeEvery) {
			return errors.New("cannot stop the service: it is still registered")
		}
	}
}
