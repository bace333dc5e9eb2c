//go:build linux

package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// program is the intermission under test; opencodeV1 the real OpenCode 1.18.
var program, opencodeV1 string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// leftover are directories that are removed after all tests.
var leftover []string

// run builds the program once for all tests, so that they meet what users run.
func run(m *testing.M) int {
	defer func() {
		for _, dir := range leftover {
			_ = os.RemoveAll(dir)
		}
	}()
	root, err := filepath.Abs("../..")
	if err != nil {
		return fail(err)
	}
	opencodeV1 = os.Getenv("OPENCODE_BIN")
	if opencodeV1 == "" {
		opencodeV1 = filepath.Join(root, ".cache", "opencode")
	}
	if _, err := os.Stat(opencodeV1); err != nil {
		return fail(fmt.Errorf("the real OpenCode is missing (%w): run `make opencode`, or name one by OPENCODE_BIN", err))
	}
	program = os.Getenv("INTERMISSION_BIN")
	if program == "" {
		dir, err := os.MkdirTemp("", "conformance")
		if err != nil {
			return fail(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "intermission")
		build := exec.Command("go", "build", "-trimpath", "-o", program, ".")
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fail(fmt.Errorf("cannot build intermission: %w\n%s", err, out))
		}
	}
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "conformance:", err)
	return 1
}

// pollEvery is how often a condition is looked at. Conditions cost an HTTP
// request or a command, on two cores that run the servers too.
const pollEvery = 50 * time.Millisecond

// patience bounds every wait for something that must come. It is long, since it costs
// nothing where it comes: two cores run everything else meanwhile, and a loaded
// machine takes half a minute to start the real server.
const patience = 90 * time.Second

// eventually waits until check returns nil. The last error says what was missing.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	if err := poll(patience, func() (bool, error) {
		err := check()
		return err == nil, err
	}); err != nil {
		t.Fatalf("%s: not within %v: %v", what, patience, err)
	}
}

// always holds a condition against its environment for a while: it fails at the
// first look that finds it broken.
func always(t testing.TB, during time.Duration, what string, check func() error) {
	t.Helper()
	var broken error
	if err := poll(during, func() (bool, error) {
		broken = check()
		return broken != nil, nil
	}); err == nil {
		t.Fatalf("%s: %v", what, broken)
	}
}

// poll looks until done, at once and then at each tick. After the deadline it
// returns the last error, or a plain one.
func poll(within time.Duration, look func() (done bool, err error)) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := look()
		if done {
			return nil
		}
		select {
		case <-deadline.C:
			if err == nil {
				err = fmt.Errorf("the time of %v is over", within)
			}
			return err
		case <-tick.C:
		}
	}
}
