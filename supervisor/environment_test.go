package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/platform"
)

// origins makes an environment of what each origin gives, and gives it back as
// "value (origin)" by name.
func origins(t *testing.T, config map[string]string, login []string, kept string, process []string) map[string]string {
	t.Helper()
	o := EnvironmentOptions{Paths: platform.Paths{ConfigFile: filepath.Join(t.TempDir(), "config.toml")}, Process: process}
	o.Config.Server.Environment = config
	if err := os.WriteFile(keptFile(o.Paths), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range makeEnvironment(o, loginAnswer{env: login}).Variables {
		if _, twice := got[v.Name]; twice {
			t.Errorf("%s stands there twice", v.Name)
		}
		got[v.Name] = v.Value + " (" + string(v.Origin) + ")"
	}
	return got
}

func TestEnvironmentTakesTheFirstOrigin(t *testing.T) {
	t.Parallel()
	got := origins(t,
		map[string]string{"A": "config", "EMPTY": ""},
		[]string{"A=login", "B=login", "C=login", "SAME=process", "EMPTY=login", "MULTI=a\n=b"},
		"A=kept\nB=kept\nD=kept\n",
		[]string{"A=process", "B=process", "C=process", "D=process", "E=process", "SAME=process", "=C:=C:\\", "TWICE=1", "TWICE=2"})
	want := map[string]string{
		"A": "config (config.toml)", "B": "login (login shell)", "C": "login (login shell)", "D": "kept (kept file)",
		"E": "process (own process)", "SAME": "process (own process)", "EMPTY": " (config.toml)", "MULTI": "a\n=b (login shell)", "TWICE": "2 (own process)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentLeavesOutWhatIsOfTheMoment(t *testing.T) {
	t.Parallel()
	never := []string{
		"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES",
		"SYSTEMD_EXEC_PID", "MANAGERPID", "XPC_SERVICE_NAME", "XPC_FLAGS",
		"PWD", "OLDPWD", "SHLVL", "_", "TERM", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "TMUX", "TMUX_PANE",
	}
	login, process := []string{}, []string{}
	for _, name := range never {
		login, process = append(login, name+"=login"), append(process, name+"=process")
	}
	if got := origins(t, nil, login, "", process); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	// Of the login session: the manager knows better; some a shell that is asked can't know.
	login = []string{"DISPLAY=:1", "DBUS_SESSION_BUS_ADDRESS=login", "XDG_RUNTIME_DIR=/login", "XDG_SESSION_ID=9", "SSH_AUTH_SOCK=/chosen", "INTERMISSION_STATE_DIR=/login"}
	if diff := cmp.Diff(map[string]string{
		"DISPLAY": ":1 (login shell)", "DBUS_SESSION_BUS_ADDRESS": "login (login shell)", "XDG_RUNTIME_DIR": "/login (login shell)",
		"SSH_AUTH_SOCK": "/chosen (login shell)",
	}, origins(t, nil, login, "", nil)); diff != "" {
		t.Error(diff)
	}
	process = []string{"DISPLAY=:0", "DBUS_SESSION_BUS_ADDRESS=manager", "XDG_RUNTIME_DIR=/run/user/1", "XDG_SESSION_ID=1", "SSH_AUTH_SOCK=/manager", "INTERMISSION_STATE_DIR=/ours"}
	if diff := cmp.Diff(map[string]string{
		"DISPLAY": ":0 (own process)", "DBUS_SESSION_BUS_ADDRESS": "manager (own process)", "XDG_RUNTIME_DIR": "/run/user/1 (own process)",
		"XDG_SESSION_ID": "1 (own process)", "SSH_AUTH_SOCK": "/chosen (login shell)", "INTERMISSION_STATE_DIR": "/ours (own process)",
	}, origins(t, nil, login, "", process)); diff != "" {
		t.Error(diff)
	}
}

// One spelling of a proxy hides the other one of an origin that counts less.
func TestEnvironmentOfProxies(t *testing.T) {
	t.Parallel()
	got := origins(t,
		map[string]string{"HTTPS_PROXY": "config"},
		[]string{"http_proxy=login", "https_proxy=login"},
		"HTTP_PROXY=kept\nALL_PROXY=kept\n",
		[]string{"all_proxy=process", "NO_PROXY=process", "no_proxy=process"})
	if diff := cmp.Diff(map[string]string{
		"HTTPS_PROXY": "config (config.toml)", "http_proxy": "login (login shell)", "ALL_PROXY": "kept (kept file)",
		"NO_PROXY": "process (own process)", "no_proxy": "process (own process)",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPathOfTheServer(t *testing.T) {
	t.Parallel()
	list := func(dirs string) string { return strings.ReplaceAll(dirs, ":", string(filepath.ListSeparator)) }
	for _, tt := range []struct{ config, login, process, want string }{
		{"", "/l:/u", "/u:/m", "/l:/u:/m (login shell, own process)"},
		{"", "/l:/u:/m/", "/u:/m", "/l:/u:/m (login shell)"},
		{"", "/u:/m", "/u:/m", "/u:/m (own process)"},
		{"", "", "/u::.:rel:/m:/u", "/u:/m (own process)"},
		{"", ":/l:rel:/l:", "", "/l (login shell)"},
		{"/c:rel", "/l", "/u", "/c:rel (config.toml)"},
	} {
		config, login, process := map[string]string{}, []string{}, []string{}
		if tt.config != "" {
			config["PATH"] = list(tt.config)
		}
		if tt.login != "" {
			login = append(login, "PATH="+list(tt.login))
		}
		if tt.process != "" {
			process = append(process, "PATH="+list(tt.process))
		}
		if got := origins(t, config, login, "", process)["PATH"]; got != list(tt.want) {
			t.Errorf("%+v: got %q", tt, got)
		}
	}
}

// What fnm makes for one shell goes with the session that the shell was in.
func TestPathOutlivesTheShell(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stays, goes := filepath.Join(root, "node-versions", "v20", "bin"), filepath.Join(root, "fnm_multishells", "1_2")
	for _, err := range []error{os.MkdirAll(stays, 0o700), os.MkdirAll(filepath.Dir(goes), 0o700), os.Symlink(filepath.Dir(stays), goes)} {
		if err != nil {
			t.Skip(err) // Windows lets not everybody make links
		}
	}
	if got := cleanPath(filepath.Join(goes, "bin")); got != stays {
		t.Errorf("got %s", got)
	}
}

// hanging never answers; it ends with ctx.
func hanging(ctx context.Context, _ []string) ([]string, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestAHangingShellHoldsUpForItsLimitOnly(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		o := EnvironmentOptions{Paths: platform.Paths{State: state}, Login: true, Process: []string{"A=1"}}
		asked := 0
		e := newEnvironment(o, func(ctx context.Context, given []string) ([]string, error) {
			asked++
			return hanging(ctx, given)
		}, func(f func()) { go f() })
		begun := time.Now()
		e.renew(t.Context())
		e.renew(t.Context())
		said := e.await(t.Context())
		if took := time.Since(begun); took != loginLimit || asked != 1 {
			t.Errorf("it took %v, asked %d times", took, asked)
		}
		if said.fault == nil || !strings.Contains(said.fault.Error(), "no answer in time") || said.env != nil {
			t.Errorf("said %+v", said)
		}
		// Nobody waits for what was answered, until it is asked again.
		if e.await(t.Context()); time.Since(begun) != loginLimit {
			t.Error("an answer was waited for twice")
		}
		ctx, cancel := context.WithCancel(t.Context())
		e.renew(ctx)
		cancel()
		e.await(ctx)
		synctest.Wait()
		if time.Since(begun) != loginLimit || asked != 2 {
			t.Errorf("the end of the supervisor was waited for; asked %d times", asked)
		}
	})
}

func TestWhatTheShellSaidBeforeCountsWhenItFails(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1790000000000)
	memory := environmentMemory{Login: []string{"PATH=/before"}, LoginAt: at.UnixMilli()}
	fails := func(context.Context, []string) ([]string, error) { return nil, errors.New("it fails") }
	said := askWithin(t.Context(), fails, nil, memory)
	if said.fault == nil || !said.at.Equal(at) || len(said.env) != 1 {
		t.Errorf("got %+v", said)
	}
	if said := askWithin(t.Context(), fails, nil, environmentMemory{}); said.fault == nil || !said.at.IsZero() {
		t.Errorf("got %+v", said)
	}
	// What a shell says without its login files counts where it has never said more.
	plain := func(context.Context, []string) ([]string, error) {
		return []string{"PATH=/plain"}, fmt.Errorf("bash: %w", platform.ErrLoginFiles)
	}
	if said := askWithin(t.Context(), plain, nil, memory); said.fault == nil || said.plain || !said.at.Equal(at) || said.env[0] != "PATH=/before" {
		t.Errorf("got %+v", said)
	}
	if said := askWithin(t.Context(), plain, nil, environmentMemory{}); said.fault == nil || !said.plain || !said.at.IsZero() || len(said.env) != 1 {
		t.Errorf("got %+v", said)
	}
	dir := t.TempDir()
	if err := memory.save(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(memory, recallEnvironment(dir)); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{"", "{", "[]"} {
		if err := os.WriteFile(environmentMemoryFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := recallEnvironment(dir); got.LoginAt != 0 {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
