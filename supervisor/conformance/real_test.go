//go:build linux

package conformance

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRealServer holds the facts of the real 1.18 that our handling of it rests
// on, without intermission: a graceful suspend is its dispose, a kill orphans tools
// and loses text, and nothing resumes by itself.
func TestRealServer(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	b := newV1(t, s).(*v1)
	server, a := b.alone(t)
	start := func(name, directive, agent, command string) work {
		w := work{directory: s.project(t, name), marker: "marker-" + name, agent: agent, command: command}
		id, err := b.create(a, w.directory)
		if err != nil {
			t.Fatal(err)
		}
		w.id = id
		if err := b.prompt(a, id, w.marker+" "+directive, agent); err != nil {
			t.Fatal(err)
		}
		atWork(t, s, b, a, w)
		return w
	}
	command := toolCommand()
	stream := start("stream", b.slow(600, 100), "plan", "")
	shell := start("shell", b.tool(command), "", command)

	var disposed bool
	if err := a.call("POST", "/global/dispose", map[string]any{}, &disposed); err != nil || !disposed {
		t.Fatalf("dispose: %v, %v", disposed, err)
	}
	eventually(t, 10*time.Second, "the end of the tool", func() error {
		if n := len(s.running(command)); n > 0 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	if text := b.savedText(t, stream.id); !strings.HasPrefix(text, "word1 ") {
		t.Errorf("dispose saved %q of the streamed text", text)
	}
	if got := b.agent(t, stream.id); got != "plan" {
		t.Errorf("the turn of a plan session has agent %q", got)
	}
	for _, w := range []work{stream, shell} {
		if h := strings.Join(b.history(t, w.id), "\n"); !strings.Contains(h, "MessageAbortedError") {
			t.Errorf("session %s holds no MessageAbortedError:\n%s", w.marker, h)
		}
	}

	command = toolCommand()
	killed := start("killed", b.tool(command), "", command)
	lost := start("lost", b.slow(600, 100), "", "")
	server.end(t, syscall.SIGKILL)
	if len(s.running(command)) == 0 {
		t.Error("the tool ended with a killed server: it needn't be looked for any more")
	}
	if text := b.savedText(t, lost.id); text != "" {
		t.Errorf("a killed server saved %q", text)
	}
	requests := b.requests(t)
	_, a = b.alone(t)
	always(t, time.Second, "a server that was started anew", func() error {
		if n := b.requests(t); n != requests {
			return fmt.Errorf("%d requests reached the model by themselves", n-requests)
		}
		if busy, err := b.active(a, killed.id, killed.directory); busy || err != nil {
			return errors.Join(err, fmt.Errorf("active: %v", busy))
		}
		return nil
	})
}
