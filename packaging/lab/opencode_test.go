//go:build linux

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The dev server's own copy of our program: an upgrade of the package isn't one of OpenCode.
	devserver = "/opt/opencode/bin/opencode-devserver"
	// faultFile lists what goes wrong in the dev server, read anew at each use.
	faultFile = home + "/fault"
	// requestsFile gets a line for each request to the model.
	requestsFile = home + "/requests.jsonl"
)

// installOpenCode puts OpenCode where the user's login shell finds it. The package must be installed.
func (m *machine) installOpenCode(t *testing.T) {
	t.Helper()
	m.must(t, "install", "-D", "/usr/bin/intermission", devserver)
	m.write(t, home+"/tools/bin/opencode", strings.Join([]string{
		"#!/bin/sh",
		"export INTERMISSION_DEVSERVER_KIND=claims",
		"export INTERMISSION_DEVSERVER_REQUESTS=" + requestsFile,
		"export INTERMISSION_DEVSERVER_FAULT=@" + faultFile,
		"export INTERMISSION_DEVSERVER_CONTINUE='[[slow n=3 ms=5]]'",
		"exec " + devserver + ` devserver "$@"`,
	}, "\n")+"\n", 0o755)
}

// fault makes the dev server fail in these ways from now on; "" mends it.
func (m *machine) fault(t *testing.T, faults string) {
	t.Helper()
	m.write(t, faultFile, faults, 0o644)
}

// requests gives what reached the model, a line each.
func (m *machine) requests(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(m.path(requestsFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// turns counts the requests of one session.
func (m *machine) turns(t *testing.T, id string) int {
	t.Helper()
	n := 0
	for _, line := range m.requests(t) {
		if strings.Contains(line, id) {
			n++
		}
	}
	return n
}

// servers gives the pids, as they are in the machine, of all OpenCode servers.
func (m *machine) servers() []string {
	return strings.Fields(m.root("pgrep", "-f", "^"+devserver+" devserver serve").stdout)
}

// begin has a client of the user's make a session and set it to work: it writes for minutes.
func (m *machine) begin(t *testing.T, name string) string {
	t.Helper()
	return m.prompt(t, name, "[[slow n=3000 ms=100]]")
}

// prompt makes a session in a directory of its own, and waits until what it is told has reached the model.
func (m *machine) prompt(t *testing.T, name, text string) string {
	t.Helper()
	directory := filepath.Join(home, name)
	m.write(t, directory+"/README", name+"\n", 0o644)
	var made struct{ Data struct{ ID string } }
	if err := m.call("POST", "/api/session", map[string]any{"location": map[string]any{"directory": directory}}, &made); err != nil {
		t.Fatalf("cannot make a session: %v", err)
	}
	id := made.Data.ID
	if err := m.call("POST", "/api/session/"+id+"/prompt", map[string]any{"text": "Please " + name + " " + text}, nil); err != nil {
		t.Fatalf("cannot prompt: %v", err)
	}
	eventually(t, "session "+name+" at work", func() error {
		if m.turns(t, id) == 0 {
			return errors.New("nothing has reached the model")
		}
		active, err := m.active()
		if err == nil && !active[id] {
			err = errors.New("it isn't active")
		}
		return err
	})
	return id
}

// active asks the server what executes.
func (m *machine) active() (map[string]bool, error) {
	var answer struct{ Data map[string]any }
	err := m.call("GET", "/api/session/active", nil, &answer)
	active := map[string]bool{}
	for id := range answer.Data {
		active[id] = true
	}
	return active, err
}

// registration is what the server publishes of itself.
type registration struct {
	ID, URL, Password string
	PID               int
}

func (m *machine) registered() (registration, error) {
	var r registration
	text, err := os.ReadFile(m.path(home + "/.local/state/opencode/service.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// call sends a request to the server as a client of the user's would.
func (m *machine) call(method, path string, in, out any) error {
	r, err := m.registered()
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, r.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.SetBasicAuth("opencode", r.Password)
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: m.dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// dial connects inside the machine, whose loopback is its own.
func (m *machine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	theirs, err := os.Open(filepath.Join("/proc", strconv.Itoa(m.leader), "ns/net"))
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // and never let go: the thread ends with this goroutine, in its namespace
		if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- dialed{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		done <- dialed{conn, err}
	}()
	d := <-done
	return d.conn, d.err
}
