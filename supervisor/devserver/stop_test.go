package devserver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestStopping is the table of OPENCODE.md, "Stopping".
func TestStopping(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		signal   syscall.Signal // 0: the API
		code     int            // -1: by signal
		graceful bool
	}{
		{"api", 0, 0, true},
		{"TERM", syscall.SIGTERM, 130, true},
		{"INT", syscall.SIGINT, 130, true},
		{"HUP", syscall.SIGHUP, -1, false},
		{"QUIT", syscall.SIGQUIT, -1, false},
		{"KILL", syscall.SIGKILL, -1, false},
	} {
		for _, k := range both {
			t.Run(row.name+"/"+string(k), func(t *testing.T) {
				t.Parallel()
				u := newUser(t, k)
				p := u.start()
				id := p.begin("[[slow n=1000 ms=20]]")
				u.eventually("the step is written", func() bool { return len(p.messages(id)) == 2 })
				end := p.stop
				if row.signal != 0 {
					end = func() *os.ProcessState { return p.signal(row.signal) }
				}
				if code := end().ExitCode(); code != row.code {
					t.Errorf("exit status %d, want %d", code, row.code)
				}
				if got, want := u.suspended(id), row.graceful || k == claims; got != want {
					t.Errorf("suspended %v, want %v", got, want)
				}
				want := "started"
				if row.graceful {
					want = "interrupted.1 shutdown"
				}
				if got := u.lastEvent(id); !strings.HasPrefix(got, want) {
					t.Errorf("the last event is %q, want %q", got, want)
				}
				_, err := os.Stat(u.settings().registration)
				if gone := errors.Is(err, fs.ErrNotExist); gone != row.graceful {
					t.Errorf("registration removed %v, want %v", gone, row.graceful)
				}
				if _, err := os.Stat(u.settings().registration + ".lock"); err != nil {
					t.Errorf("the lock file is gone: %v", err)
				}
				u.start() // stale or gone, the next one starts
			})
		}
	}
}

// TestStreamIsResetFirst: what ended at the shutdown is not heard of, only read.
func TestStreamIsResetFirst(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	stream := p.stream()
	id := p.begin("[[slow n=1000 ms=20]]")
	for line := range stream {
		if strings.Contains(line, "session.text.delta") {
			break
		}
	}
	p.stop()
	var last string
	for line := range stream {
		last = line
		if strings.Contains(line, "session.execution.interrupted") {
			t.Error("the stream tells of the last events")
		}
	}
	if !strings.Contains(last, "reset") {
		t.Errorf("the stream ended with %q, want a reset", last)
	}
	text := u.get(`SELECT json_extract(data, '$.content[0].text') FROM session_message WHERE session_id = ? AND type = 'assistant'`, id)
	if !strings.HasPrefix(text, "tok1 ") {
		t.Errorf("the partial text is %q", text)
	}
}

// pidIn waits for a script to write its pid to a file.
func (u *user) pidIn(name string) int {
	u.t.Helper()
	pid := 0
	u.eventually("the tool runs", func() bool {
		text, err := os.ReadFile(filepath.Join(u.home, name))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

func runs(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// TestToolsAtStop: a tool is asked to end; one that ignores it outlives the server.
func TestToolsAtStop(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	polite := p.begin(`[[shell echo $$ > polite.tmp; mv polite.tmp polite; sleep 100]]`)
	p.begin(`[[shell trap '' TERM; echo $$ > deaf.tmp; mv deaf.tmp deaf; while :; do sleep 0.1; done]]`)
	p.begin(`[[bgshell echo $$ > back.tmp; mv back.tmp back; sleep 100]]`)
	tool, deaf, back := u.pidIn("polite"), u.pidIn("deaf"), u.pidIn("back")
	running := p.messages(polite)[1]["content"].([]any)[0].(map[string]any)["state"].(map[string]any)["status"]
	if running != "running" {
		t.Errorf("a tool at work is %q", running)
	}
	p.stop()
	u.eventually("the polite tools end", func() bool { return !runs(tool) && !runs(back) })
	if !runs(deaf) {
		t.Error("the tool that ignores TERM did not outlive the server")
	} else if orphan, err := os.FindProcess(deaf); err == nil {
		_ = orphan.Kill()
	}
	if got := u.get(`SELECT json_extract(data, '$.content[0].state.status') FROM session_message WHERE session_id = ? AND type = 'assistant'`, polite); got != "error" {
		t.Errorf("the interrupted tool is %q, want error", got)
	}
}

// TestToolAfterKill: after SIGKILL the row still says running.
func TestToolAfterKill(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.begin(`[[shell echo $$ > tool.tmp; mv tool.tmp tool; sleep 100]]`)
	tool := u.pidIn("tool")
	p.signal(syscall.SIGKILL)
	if got := u.get(`SELECT json_extract(data, '$.content[0].state.status') FROM session_message WHERE session_id = ? AND type = 'assistant'`, id); got != "running" {
		t.Errorf("the tool is %q, want running", got)
	}
	if orphan, err := os.FindProcess(tool); err == nil {
		_ = orphan.Kill()
	}
}
