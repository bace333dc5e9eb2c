package tray

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram makes the test binary be one of the programs.
const asProgram = "INTERMISSION_TRAY_TEST_PROGRAM"

// programs are what the test binary can be instead: systray allows one tray a process, and races inside
// itself. A test file adds its own in an init function. A program that returns ends with status 0.
var programs = map[string]func(){}

func TestMain(m *testing.M) {
	if name := os.Getenv(asProgram); name != "" {
		programs[name]()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		for _, end := range atExit {
			end()
		}
		os.Exit(status)
	}))
}

// atExit is what is done when all tests have run.
var atExit []func()

// patience bounds every wait for another process. It costs nothing where that comes,
// and two cores run everything else meanwhile.
const patience = 60 * time.Second

// child is a running program.
type child struct {
	cmd    *exec.Cmd
	output transcript
	ended  chan struct{} // closed when it has ended, with err set
	err    error
}

// start runs a program with a fresh home and a small environment, until the test ends.
func start(t testing.TB, program string, env ...string) *child {
	t.Helper()
	home := t.TempDir()
	c := &child{cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	// A race is told in the output, not by the exit status: those inside systray are known.
	c.cmd.Env = append([]string{asProgram + "=" + program, "GORACE=exitcode=0", "PATH=" + os.Getenv("PATH"),
		"HOME=" + home, "TMPDIR=" + home, "XDG_RUNTIME_DIR=" + home}, env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.output, &c.output
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v", program, err)
	}
	go func() { c.err = c.cmd.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		c.kill()
		if race := ownRace(c.output.String()); race != "" {
			t.Errorf("a data race in %s:\n%s", program, race)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", program, c.output.String())
		}
	})
	return c
}

// kill ends the program as a crash does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// wait returns how the program ended by itself.
func (c *child) wait(t testing.TB) error {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatalf("the program goes on after %v", patience)
	}
	return c.err
}

// ownRace returns a report of the race detector in which our own code made one of the two accesses.
// Races between two accesses of systray's are left to systray.
func ownRace(output string) string {
	for _, report := range strings.Split(output, "==================") {
		lines := strings.Split(report, "\n")
		for i, line := range lines[:len(lines)-1] {
			access := strings.Contains(line, " by goroutine ") || strings.HasSuffix(line, " by main goroutine:")
			if access && strings.HasPrefix(strings.TrimSpace(lines[i+1]), "intermission/") {
				return report
			}
		}
	}
	return ""
}

// transcript keeps what a program wrote.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
