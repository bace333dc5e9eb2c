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
	command := toolCommand()
	stream := begin(t, s, b, a, "stream", b.slow(600, 100), "plan", "")
	shell := begin(t, s, b, a, "shell", b.tool(command), "", command)

	var disposed bool
	if err := a.call("POST", "/global/dispose", map[string]any{}, &disposed); err != nil || !disposed {
		t.Fatalf("dispose: %v, %v", disposed, err)
	}
	eventually(t, "the end of the tool", func() error {
		if n := len(s.running(command)); n > 0 {
			return fmt.Errorf("%d processes", n)
		}
		return nil
	})
	if text := b.text(t, stream.id); !strings.HasPrefix(text, "word1 ") {
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
	killed := begin(t, s, b, a, "killed", b.tool(command), "", command)
	lost := begin(t, s, b, a, "lost", b.slow(600, 100), "", "")
	server.end(t, syscall.SIGKILL)
	if len(s.running(command)) == 0 {
		t.Error("the tool ended with a killed server: it needn't be looked for any more")
	}
	if text := b.text(t, lost.id); text != "" {
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
	onceByKey(t, b, a, lost)
}

// onceByKey holds what our promise of one continuation rests on: a prompt with the same
// message and part ids executes once, whether it comes again at once or when all is over.
func onceByKey(t *testing.T, b *v1, a api, w work) {
	t.Helper()
	turns := b.turns(t, w)
	id := fmt.Sprintf("%012x", uint64(time.Now().UnixMilli())<<12&(1<<48-1)) + "Intermission00"
	again := func() {
		if err := a.call("POST", "/session/"+w.id+"/prompt_async", map[string]any{
			"messageID": "msg_" + id, "agent": "plan",
			"parts": []any{map[string]any{"id": "prt_" + id, "type": "text", "text": "Go on."}},
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	once := func() error {
		if n := b.turns(t, w); n != turns+1 {
			return fmt.Errorf("%d turns", n-turns)
		}
		return nil
	}
	again()
	again()
	eventually(t, "one turn", once)
	eventually(t, "its end", func() error {
		busy, err := b.active(a, w.id, w.directory)
		if err == nil && busy {
			err = errors.New("busy")
		}
		return err
	})
	again()
	always(t, time.Second, "one turn", once)
	if got := b.agent(t, w.id); got != "plan" {
		t.Errorf("the turn has agent %q", got)
	}
	if err := a.call("GET", "/session/"+w.id+"/message/msg_"+id, nil, nil); err != nil {
		t.Errorf("the message can't be looked up: %v", err)
	}
}
