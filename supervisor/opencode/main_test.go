package opencode

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be a program that is asked for its version.
func TestMain(m *testing.M) {
	switch os.Getenv("FAKE_OPENCODE") {
	case "":
		goleak.VerifyTestMain(m)
	case "answer":
		answerAsOpencode()
	case "fail":
		fmt.Fprintln(os.Stderr, "no such thing")
		os.Exit(3)
	case "hang":
		hangWithChild()
	case "listen":
		listenAsStranger()
	case "end":
	}
}

// answerAsOpencode prints what FAKE_VERSION and FAKE_HELP say, and first a notice as wrappers do.
func answerAsOpencode() {
	if len(os.Args) > 2 && slices.Equal(os.Args[len(os.Args)-2:], []string{"serve", "--help"}) {
		fmt.Println(os.Getenv("FAKE_HELP"))
		return
	}
	if log := os.Getenv("FAKE_LOG"); log != "" {
		_ = os.WriteFile(log, []byte(strings.Join(os.Args[1:], " ")+"|"+os.Getenv("NOTIFY_SOCKET")), 0o600)
	}
	fmt.Println("a notice")
	fmt.Println(os.Getenv("FAKE_VERSION"))
}

// hangWithChild holds on, and so does a child of it that has the same output.
func hangWithChild() {
	pids := fmt.Sprint(os.Getpid())
	if os.Getenv("FAKE_CHILD") == "" {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "FAKE_CHILD=1")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			panic(err)
		}
		pids += fmt.Sprintf(" %d", child.Process.Pid)
		path := os.Getenv("FAKE_LOG")
		_ = os.WriteFile(path+".new", []byte(pids), 0o600)
		_ = os.Rename(path+".new", path)
	}
	time.Sleep(time.Minute) // ended long before by the test, or by itself should that fail
}

// listenAsStranger takes connections, says where, and how much it has heard when its input ends.
func listenAsStranger() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	var heard atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(io.Discard, conn)
				heard.Add(n)
			}()
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Printf("heard %d bytes\n", heard.Load())
}

// poll waits until ok, for at most 10 s.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// deadPID is the pid of a process that has ended.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FAKE_OPENCODE=end")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
