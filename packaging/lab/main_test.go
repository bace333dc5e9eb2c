//go:build linux

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(keeperVariable); dir != "" {
		os.Exit(keep(dir))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := sweep(os.TempDir()); err != nil {
		fmt.Fprintln(os.Stderr, "lab: a killed run left what can't be removed:", err)
	}
	defer func() { // of whatever the tests have built
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
	}()
	return m.Run()
}

// missing tells what a machine needs and this system hasn't.
func missing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	packages, err := exec.Command("./missing.sh").Output()
	if err != nil {
		missing = append(missing, fmt.Sprintf("missing.sh (%v)", err))
	}
	for name := range strings.FieldsSeq(string(packages)) {
		missing = append(missing, "the package "+name)
	}
	kinds, _ := os.ReadFile("/proc/filesystems")
	for _, kind := range []string{"cgroup2", "overlay"} {
		if !strings.Contains(string(kinds), "\t"+kind+"\n") {
			missing = append(missing, kind+" in the kernel")
		}
	}
	return missing
}

// requireLab skips the test where no machine can be had; in CI it fails.
func requireLab(t *testing.T) {
	t.Helper()
	if lacking := missing(); len(lacking) > 0 {
		noMachine(t, "it lacks "+strings.Join(lacking, ", "))
	}
}

// noMachine skips the test, in CI it fails.
func noMachine(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("no machine can be had here: %s", why)
	}
	t.Skipf("no machine can be had here: %s", why)
}

// pollEvery is how often a condition is looked at. Conditions cost a command in the machine.
const pollEvery = 50 * time.Millisecond

// patience bounds every wait for something that must come.
const patience = 60 * time.Second

// eventually waits until check returns nil. The last error says what was missing.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	within(t, patience, what, check)
}

// within is eventually with a limit of its own.
func within(t *testing.T, limit time.Duration, what string, check func() error) {
	t.Helper()
	var last error
	if !poll(limit, func() bool { last = check(); return last == nil }) {
		t.Fatalf("%s: not within %v: %v", what, limit, last)
	}
}

// always holds a condition for a while: it fails at the first look that finds it broken.
func always(t *testing.T, during time.Duration, what string, check func() error) {
	t.Helper()
	var broken error
	if poll(during, func() bool { broken = check(); return broken != nil }) {
		t.Fatalf("%s: %v", what, broken)
	}
}

// poll looks until found, at once and then at each tick; false says that the time is over.
func poll(limit time.Duration, found func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !found() {
		select {
		case <-deadline.C:
			return false
		case <-tick.C:
		}
	}
	return true
}
