package opencode

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpawn(t *testing.T) {
	t.Parallel()
	env := []string{
		"PATH=/bin", "NOTIFY_SOCKET=/run/n", "WATCHDOG_USEC=1", "WATCHDOG_PID=2", "OPENCODE_SERVER_PASSWORD=callers",
		"OPENCODE_SERVER_USERNAME=callers", "INTERMISSION_INCARNATION=older", "HTTPS_PROXY=x",
	}
	for name, c := range map[string]struct {
		generation Generation
		args       []string
		want       string
	}{
		"v2":            {V2, nil, "/opt/opencode serve --service"},
		"v2 configured": {V2, []string{"dev", "serve", "--service", "--x"}, "/opt/opencode dev serve --service --x"},
		"v1":            {V1, nil, "/opt/opencode serve --hostname 127.0.0.1 --port 4097"},
		"v1 configured": {
			V1, []string{"serve", "--service", "--port", "1", "--hostname=0.0.0.0", "--print-logs"},
			"/opt/opencode serve --print-logs --hostname 127.0.0.1 --port 4097",
		},
	} {
		in := &Install{Program: "/opt/opencode", Args: c.args, Env: env, Generation: c.generation}
		argv, got := in.Spawn("inc-1", 4097, "secret")
		if line := strings.Join(argv, " "); line != c.want {
			t.Errorf("%s: got %q, want %q", name, line, c.want)
		}
		want := []string{"PATH=/bin", "HTTPS_PROXY=x", "INTERMISSION_INCARNATION=inc-1"}
		if c.generation == V1 {
			want = append(want, "OPENCODE_SERVER_PASSWORD=secret")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: environment is %q, want %q", name, got, want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	state := filepath.Join(t.TempDir(), "state")
	hashed := "service-34c6fceca75e456f25e7e99531e2425c6c1de443.json.lock" // sha1 of "dev"
	if err := os.MkdirAll(filepath.Join(state, "opencode"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "opencode", hashed), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		in   Install
		lock string
	}{
		"home":            {Install{Generation: V2, Version: "2.2.0", Env: []string{"HOME=" + home}}, filepath.Join(home, ".local/state/opencode/service.json.lock")},
		"xdg":             {Install{Generation: V2, Version: "2.2.0", Env: []string{"HOME=" + home, "XDG_STATE_HOME=" + state}}, filepath.Join(state, "opencode/service.json.lock")},
		"channel":         {Install{Generation: V2, Version: "0.0.0-my-branch-77", Env: []string{"XDG_STATE_HOME=" + state}}, filepath.Join(state, "opencode/service-my-branch.json.lock")},
		"hashed channel":  {Install{Generation: V2, Version: "0.0.0-dev-77", Env: []string{"XDG_STATE_HOME=" + state}}, filepath.Join(state, "opencode", hashed)},
		"v1 has no lock":  {Install{Generation: V1, Version: "1.18.33", Env: []string{"HOME=" + home}}, ""},
		"the last counts": {Install{Generation: V2, Env: []string{"XDG_STATE_HOME=/nowhere", "XDG_STATE_HOME=" + state}}, filepath.Join(state, "opencode/service.json.lock")},
	} {
		if got := c.in.LockPath(); got != c.lock {
			t.Errorf("%s: the lock is %q, want %q", name, got, c.lock)
		}
	}
	in := Install{Version: "2.2.0", Env: []string{"HOME=" + home}}
	if got, err := in.DatabasePath(); err != nil || got != filepath.Join(home, ".local/share/opencode/opencode.db") {
		t.Errorf("the database is %q (%v)", got, err)
	}
}

// The lock's name is told by what the server has left, never by a lock that we have made.
func TestLockPathOfAChannel(t *testing.T) {
	t.Parallel()
	const plain, hashed = "service-dev.json", "service-34c6fceca75e456f25e7e99531e2425c6c1de443.json" // sha1 of "dev"
	for name, c := range map[string]struct {
		files []string // the oldest first
		want  string
	}{
		"nothing":                          {nil, plain},
		"a plain lock, perhaps ours":       {[]string{plain + ".lock"}, plain},
		"a server's lock beside ours":      {[]string{hashed + ".lock", plain + ".lock"}, hashed},
		"a hashed registration":            {[]string{hashed, plain + ".lock"}, hashed},
		"a plain registration":             {[]string{plain, plain + ".lock", hashed + ".lock"}, plain},
		"a hashed build after a plain one": {[]string{plain, plain + ".lock", hashed, hashed + ".lock"}, hashed},
		"a plain build after a hashed one": {[]string{hashed, hashed + ".lock", plain, plain + ".lock"}, plain},
		"another channel's":                {[]string{"service.json", "service-beta.json"}, plain},
	} {
		in := Install{Generation: V2, Version: "0.0.0-dev-77", Env: []string{"XDG_STATE_HOME=" + t.TempDir()}}
		if err := os.MkdirAll(in.RegistrationDir(), 0o700); err != nil {
			t.Fatal(err)
		}
		for n, file := range c.files {
			path, at := filepath.Join(in.RegistrationDir(), file), time.Now().Add(time.Duration(n-10)*time.Minute)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		if got := filepath.Base(in.LockPath()); got != c.want+".lock" {
			t.Errorf("%s: the lock is %s", name, got)
		}
	}
}
