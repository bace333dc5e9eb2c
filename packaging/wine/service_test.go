//go:build linux

package wine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// installed is the program on a Windows, whose OpenCode is the embedded dev server.
type installed struct {
	*Bench
	home string // here
}

const (
	programFile  = `C:\Program Files\Intermission\intermission.exe`
	requestsFile = `C:\requests.jsonl` // gets a line for each request to the model
)

func install(t *testing.T) installed {
	t.Helper()
	b := startBench(t)
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	i := installed{b, b.Path(`C:\users\` + who.Username)}
	goForWindows(t, "build", "-o", b.Path(programFile), ".")
	config := filepath.Join(i.home, "AppData", "Roaming", "intermission", "config.toml")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`[server]
command = ['`+programFile+`', "devserver", "serve", "--service"]
generation = "v2"
environment = { INTERMISSION_DEVSERVER_KIND = "claims", INTERMISSION_DEVSERVER_REQUESTS = '`+requestsFile+`' }
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// run runs a command of ours.
func (i installed) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := i.Command(t.Context(), append([]string{programFile}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return string(out), fmt.Errorf("%q: %w: %s", args, err, stderr.Bytes())
	}
	return string(out), nil
}

func (i installed) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := i.run(t, args...)
	if err != nil {
		t.Fatalf("%v\n%s\nlog:\n%s", err, out, i.log())
	}
	return out
}

// log is what the supervisor has written down.
func (i installed) log() string {
	text, _ := os.ReadFile(filepath.Join(i.home, "AppData", "Local", "intermission", "log", "intermission.log"))
	return string(text)
}

// requests counts what has reached the model.
func (i installed) requests() int {
	text, _ := os.ReadFile(i.Path(requestsFile))
	return bytes.Count(text, []byte("\n"))
}

// call asks the server as a client of the user's would: its loopback is ours.
func (i installed) call(method, path string, in, out any) error {
	var r struct{ URL, Password string }
	text, err := os.ReadFile(filepath.Join(i.home, ".local", "state", "opencode", "service.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
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
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// serving waits until the service's server answers.
func (i installed) serving(t *testing.T) {
	t.Helper()
	eventually(t, "a running server", func() error {
		out, err := i.run(t, "status", "--json")
		if err == nil && !strings.Contains(out, `"state":"running"`) {
			err = errors.New(out + i.log())
		}
		return err
	})
}

// TestService installs the service as a person does, who is asked for the password,
// and goes with it through a stop with a session at work.
func TestService(t *testing.T) {
	i := install(t)
	t.Cleanup(func() { _, _ = i.run(t, "service", "uninstall") })

	if _, err := i.run(t, "service", "install", "--service"); err == nil || !strings.Contains(err.Error(), "nobody can be asked") {
		t.Errorf("installed without a password: %v", err)
	}
	shown, err := inTerminal(t, i.Command(t.Context(), programFile, "service", "install", "--service"), "Password of ", "correct horse")
	if err != nil {
		t.Fatalf("%v\n%s\nlog:\n%s", err, shown, i.log())
	}
	if strings.Contains(shown, "correct horse") {
		t.Errorf("the password is shown:\n%s", shown)
	}
	i.serving(t)
	if out := i.must(t, "service", "status"); !strings.Contains(out, "Windows service") || !strings.Contains(out, "running") {
		t.Errorf("status:\n%s", out)
	}

	var made struct{ Data struct{ ID string } }
	if err := os.MkdirAll(i.Path(`C:\work`), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := i.call("POST", "/api/session", map[string]any{"location": map[string]any{"directory": `C:\work`}}, &made); err != nil {
		t.Fatal(err)
	}
	if err := i.call("POST", "/api/session/"+made.Data.ID+"/prompt", map[string]any{"text": "Go on [[slow n=3000 ms=100]]"}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a session at work", func() error {
		if i.requests() != 1 {
			return fmt.Errorf("%d requests have reached the model", i.requests())
		}
		return nil
	})

	// By Windows' own hand, of which Wine's doesn't wait for the end.
	if out, err := Output(i.Command(t.Context(), "net", "stop", "intermission")); err != nil || !bytes.Contains(out, []byte("stopped successfully")) {
		t.Fatalf("net stop: %v\n%s", err, out)
	}
	eventually(t, "a stopped service", func() error {
		if out, _ := i.run(t, "service", "status", "--json"); !strings.Contains(out, `"state":"stopped"`) {
			return errors.New(out)
		}
		return nil
	})
	if err := i.call("GET", "/api/session/active", nil, nil); err == nil {
		t.Error("the service has said that it is stopped, and its server answers still")
	}
	log := i.log()
	for _, want := range []string{"the server is stopping", "the server is stopped"} {
		if !strings.Contains(log, want) {
			t.Errorf("the stop was not in order: %q is not said:\n%s", want, log)
		}
	}
	for _, unwanted := range []string{"level=ERROR", "lock file was removed", "has lost its lock"} {
		if strings.Contains(log, unwanted) {
			t.Errorf("the stop was not in order: it says %q:\n%s", unwanted, log)
		}
	}
	if out := i.must(t, "service", "start"); !strings.Contains(out, "running") {
		t.Errorf("started:\n%s", out)
	}
	i.serving(t)
	pending := i.must(t, "pending", "--json")
	if !strings.Contains(pending, made.Data.ID) || !strings.Contains(pending, `"cause":"shutdown"`) {
		t.Errorf("pending:\n%s\nlog:\n%s", pending, i.log())
	}
	if n := i.requests(); n != 1 {
		t.Errorf("%d requests reached the model without consent", n-1)
	}

	i.must(t, "service", "stop")
	if err := i.call("GET", "/api/session/active", nil, nil); err == nil {
		t.Error("the server answers after the stop")
	}
	i.must(t, "service", "start")
	i.must(t, "service", "uninstall")
	if out, err := Output(i.Command(t.Context(), "net", "start", "intermission")); err == nil {
		t.Errorf("it is there still:\n%s", out)
	}
	if err := i.call("GET", "/api/session/active", nil, nil); err == nil {
		t.Error("the server answers after the service was taken away")
	}
}
