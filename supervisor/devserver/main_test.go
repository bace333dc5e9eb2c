package devserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asServer makes the test binary be the devserver.
const asServer = "INTERMISSION_DEVSERVER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		// As the program's command line does.
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := Main(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for another process.
const patience = 60 * time.Second

// both are the two kinds of v2.
var both = []kind{early, claims}

// user is a person with a home of their own, in which servers run.
type user struct {
	t    *testing.T
	kind kind
	home string
	env  []string
}

func newUser(t *testing.T, k kind, env ...string) *user {
	t.Helper()
	home := t.TempDir()
	u := &user{t: t, kind: k, home: home}
	u.env = append([]string{asServer + "=1", "HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home,
		"INTERMISSION_DEVSERVER_KIND=" + string(k), "INTERMISSION_DEVSERVER_REQUESTS=" + filepath.Join(home, "requests"),
		"INTERMISSION_DEVSERVER_SWEEP_DELAY=50ms", "INTERMISSION_DEVSERVER_FAULT=@" + filepath.Join(home, "faults")}, env...)
	return u
}

// settings is what a server of this user is told.
func (u *user) settings(env ...string) settings {
	u.t.Helper()
	set, err := newSettings(func(name string) string {
		value := ""
		for _, entry := range append(u.env, env...) {
			if rest, ok := strings.CutPrefix(entry, name+"="); ok {
				value = rest
			}
		}
		return value
	})
	if err != nil {
		u.t.Fatal(err)
	}
	return set
}

// fault makes running and future servers misbehave.
func (u *user) fault(list string) {
	u.t.Helper()
	if err := os.WriteFile(filepath.Join(u.home, "faults"), []byte(list), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

// requests gives what reached the provider.
func (u *user) requests() []request {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.home, "requests"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		u.t.Fatal(err)
	}
	var list []request
	for line := range bytes.Lines(text) {
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			u.t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// requestsOf counts the requests of one session.
func (u *user) requestsOf(session string) (n int) {
	for _, r := range u.requests() {
		if r.Session == session {
			n++
		}
	}
	return n
}

// process is a server that was started.
type process struct {
	u      *user
	cmd    *exec.Cmd
	out    bytes.Buffer
	exited chan struct{}
	reg    registration
}

// run starts a command and doesn't wait.
func (u *user) run(args ...string) *process {
	u.t.Helper()
	p := &process{u: u, cmd: exec.Command(os.Args[0], args...), exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = u.env, &p.out, &p.out
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	u.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if bytes.Contains(p.out.Bytes(), []byte("DATA RACE")) {
			u.t.Error("the server has a data race")
		}
		if u.t.Failed() {
			u.t.Logf("output of %v:\n%s", args, &p.out)
		}
	})
	return p
}

// start starts a service and waits until it is ready.
func (u *user) start(args ...string) *process {
	u.t.Helper()
	p := u.run(append([]string{"serve", "--service"}, args...)...)
	u.eventually("the server is ready", func() bool {
		r, err := readRegistration(u.settings().registration)
		if err != nil || r.PID != p.cmd.Process.Pid {
			return false
		}
		p.reg = r
		status, _, err := p.try("GET", "/api/health", nil)
		return err == nil && status == 200
	})
	return p
}

// wait waits until the process has ended and gives its state.
func (p *process) wait() *os.ProcessState {
	p.u.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.u.t.Fatal("the server does not end")
	}
	return p.cmd.ProcessState
}

func (p *process) signal(sig syscall.Signal) *os.ProcessState {
	p.u.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.u.t.Fatal(err)
	}
	return p.wait()
}

// stop stops by the API.
func (p *process) stop() *os.ProcessState {
	p.u.t.Helper()
	var answer struct{ Accepted bool }
	p.want(200, "POST", "/api/service/stop", data{"instanceID": p.reg.ID}, &answer)
	if !answer.Accepted {
		p.u.t.Fatal("the stop was not accepted")
	}
	return p.wait()
}

// eventually polls until ok.
func (u *user) eventually(what string, ok func() bool) {
	u.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			u.t.Fatalf("never happened: %s", what)
		}
	}
}

// try makes one request on a connection of its own, and holds the answer to the recorded schema.
func (p *process) try(method, path string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.reg.URL+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.SetBasicAuth(username, p.reg.Password)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil {
		if misfit := checkAnswer(method, path, resp.StatusCode, answer); misfit != nil {
			p.u.t.Error(misfit)
		}
	}
	return resp.StatusCode, answer, err
}

// want makes one request that must be answered with status, and reads the answer into into.
func (p *process) want(status int, method, path string, body, into any) {
	p.u.t.Helper()
	got, answer, err := p.try(method, path, body)
	if err != nil || got != status {
		p.u.t.Fatalf("%s %s: %d %s %v, want %d", method, path, got, answer, err, status)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			p.u.t.Fatalf("%s %s: %s: %v", method, path, answer, err)
		}
	}
}

// session creates a session and gives its id.
func (p *process) session() string {
	p.u.t.Helper()
	var answer struct{ Data sessionInfo }
	p.want(200, "POST", "/api/session", data{"location": data{"directory": p.u.home}}, &answer)
	return answer.Data.ID
}

func (p *process) prompt(session, text string) {
	p.u.t.Helper()
	p.want(200, "POST", "/api/session/"+session+"/prompt", data{"text": text}, nil)
}

// begin creates a session, prompts it and waits until its model was asked.
func (p *process) begin(text string) string {
	p.u.t.Helper()
	id := p.session()
	p.prompt(id, text)
	p.u.eventually("the model was asked", func() bool { return p.u.requestsOf(id) > 0 })
	return id
}

func (p *process) settle(session string) {
	p.u.t.Helper()
	p.want(204, "POST", "/api/session/"+session+"/wait", nil, nil)
}

func (p *process) actives() map[string]any {
	p.u.t.Helper()
	var answer struct{ Data map[string]any }
	p.want(200, "GET", "/api/session/active", nil, &answer)
	return answer.Data
}

func (p *process) messages(session string) []message {
	p.u.t.Helper()
	var answer struct{ Data []message }
	p.want(200, "GET", "/api/session/"+session+"/context", nil, &answer)
	return answer.Data
}

// stream subscribes to events; each line of the stream arrives in order, and the channel is closed with it.
func (p *process) stream() <-chan string {
	p.u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.u.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.reg.URL+"/api/event", nil)
	if err != nil {
		p.u.t.Fatal(err)
	}
	req.SetBasicAuth(username, p.reg.Password)
	transport := &http.Transport{}
	resp, err := transport.RoundTrip(req) //nolint:bodyclose // by the reader
	if err != nil {
		p.u.t.Fatal(err)
	}
	lines := make(chan string, 10_000)
	go func() {
		defer transport.CloseIdleConnections()
		defer close(lines)
		defer resp.Body.Close()
		scan := bufio.NewScanner(resp.Body)
		scan.Buffer(nil, 1<<20)
		for scan.Scan() {
			if scan.Text() != "" {
				lines <- scan.Text()
			}
		}
		if err := scan.Err(); err != nil {
			lines <- fmt.Sprintf("ended: %v", err)
		}
	}()
	return lines
}
