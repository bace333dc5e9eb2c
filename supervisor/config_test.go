package supervisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	t.Parallel()
	with := func(change func(*Config)) Config {
		c := DefaultConfig()
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		doc  string
		want Config
	}{
		"empty":    {"", DefaultConfig()},
		"comments": {"# nothing\n[server]\n# port = 1\n", DefaultConfig()},
		"all": {`
[server]
command = ["opencode", "serve", "--service"]
generation = "v2"
port = 4096
environment = { HTTPS_PROXY = "http://proxy:3128", EMPTY = "" }
ready_timeout = "90s"
stop_timeout = "1m30s"
[resume]
concurrency = 64
text = "go on"
[notify]
enabled = false
quiet = ["22:00-07:00", "12:30-13:15"]
stall_after = "1h"
[log]
max_size = "1.5 MiB"
keep = 0
`, Config{
			Server: ServerConfig{
				Command: []string{"opencode", "serve", "--service"}, Generation: "v2", Port: 4096,
				Environment:  map[string]string{"HTTPS_PROXY": "http://proxy:3128", "EMPTY": ""},
				ReadyTimeout: 90 * time.Second, StopTimeout: 90 * time.Second,
			},
			Resume: ResumeConfig{Concurrency: 64, Text: "go on"},
			Notify: NotifyConfig{Quiet: []QuietHours{{From: 1320, To: 420}, {From: 750, To: 795}}, StallAfter: time.Hour},
			Log:    LogConfig{MaxSize: 3 << 19, Keep: 0},
		}},
		"dotted and inline": {"server.port = 1\nlog = { keep = 2 }\n", with(func(c *Config) { c.Server.Port, c.Log.Keep = 1, 2 })},
		"environment table": {"[server.environment]\nA = \"b\"\n", with(func(c *Config) { c.Server.Environment = map[string]string{"A": "b"} })},
		"no quiet hours":    {"[notify]\nquiet = []\n", with(func(c *Config) { c.Notify.Quiet = []QuietHours{} })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseConfig("config.toml", []byte(tc.doc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseConfigErrors(t *testing.T) {
	t.Parallel()
	const duration = ` is not a duration like "60s"`
	for _, tc := range []struct{ doc, want string }{
		{"[server]\n\nprot = 1\n", `config.toml:3: unknown key "prot" in [server]; known keys: command, environment, generation, port, ready_timeout, stop_timeout`},
		{"\n[servr]\nport = 1\n", `config.toml:2: unknown section [servr]; known sections: log, notify, resume, server`},
		{"port = 1\n", `config.toml:1: unknown section [port]; known sections: log, notify, resume, server`},
		{"log = 5\n", `config.toml:1: log: must be a section: [log]`},
		{"[[log]]\nkeep = 1\n", `config.toml:1: log: must be a section: [log]`},
		{"[server]\nready_timeout = \"60\"\n", `config.toml:2: ready_timeout: "60"` + duration},
		{"[server]\nready_timeout = 60\n", `config.toml:2: ready_timeout: 60` + duration},
		{"[server]\nready_timeout = \"0s\"\n", `config.toml:2: ready_timeout: "0s"` + duration},
		{"[server]\nready_timeout = \"-1s\"\n", `config.toml:2: ready_timeout: "-1s"` + duration},
		{"[server]\nready_timeout = 07:32:00\n", `config.toml:2: ready_timeout: 07:32:00` + duration},
		{"[server]\nstop_timeout = true\n", `config.toml:2: stop_timeout: true is not a duration like "20s"`},
		{"[server]\nport = 65536\n", `config.toml:2: port: 65536 is not a number from 0 to 65535`},
		{"[server]\nport = -1\n", `config.toml:2: port: -1 is not a number from 0 to 65535`},
		{"[server]\nport = \"80\"\n", `config.toml:2: port: "80" is not a number from 0 to 65535`},
		{"[server]\nport = 80.5\n", `config.toml:2: port: 80.5 is not a number from 0 to 65535`},
		{"[server]\ngeneration = \"V2\"\n", `config.toml:2: generation: "V2" is not "auto", "v1" or "v2"`},
		{"[server]\ncommand = \"opencode\"\n", `config.toml:2: command: "opencode" is not a list of a program and its arguments, like ["opencode", "serve"]`},
		{"[server]\ncommand = []\n", `config.toml:2: command: [] is not a list of a program and its arguments, like ["opencode", "serve"]`},
		{"[server]\ncommand = [\"\"]\n", `config.toml:2: command: [""] is not a list`},
		{"[server]\nenvironment = { \"A=B\" = \"c\" }\n", `config.toml:2: environment: this table is not a table of names and texts`},
		{"[server]\nenvironment = { A = 1 }\n", `config.toml:2: environment: this table is not a table of names and texts`},
		{"[server.environment]\nA = 1\n", `config.toml:1: environment: this table is not`},
		{"[resume]\nconcurrency = 0\n", `config.toml:2: concurrency: 0 is not a number from 1 to 64`},
		{"[resume]\nconcurrency = 65\n", `config.toml:2: concurrency: 65 is not a number from 1 to 64`},
		{"[resume]\ntext = \" \"\n", `config.toml:2: text: " " is not a text that isn't empty`},
		{"[notify]\nenabled = \"yes\"\n", `config.toml:2: enabled: "yes" is not true or false`},
		{"[notify]\nquiet = [\"22:00\"]\n", `config.toml:2: quiet: ["22:00"] is not a list of times like ["22:00-07:00"]`},
		{"[notify]\nquiet = [\"24:00-07:00\"]\n", `config.toml:2: quiet: ["24:00-07:00"] is not a list`},
		{"[notify]\nquiet = [\"7:00-8:00\"]\n", `config.toml:2: quiet: ["7:00-8:00"] is not a list`},
		{"[notify]\nquiet = [\"07:00-07:00\"]\n", `config.toml:2: quiet: ["07:00-07:00"] is not a list`},
		{"[log]\nmax_size = \"10XB\"\n", `config.toml:2: max_size: "10XB" is not a size like "10MB"`},
		{"[log]\nmax_size = \"0\"\n", `config.toml:2: max_size: "0" is not a size like "10MB"`},
		{"[log]\nmax_size = 10\n", `config.toml:2: max_size: 10 is not a size like "10MB"`},
		{"[log]\nkeep = -1\n", `config.toml:2: keep: -1 is not a number from 0 to 1000`},
		{"server = { port = 1,\n prot = 2 }\n", `config.toml:2: unknown key "prot" in [server]`},
		{"server.prot = 2\n", `config.toml:1: unknown key "prot" in [server]`},
		{"[server]\nport = \n", `config.toml:2: `},
		{"[server]\nport = 1\nport = 2\n", `config.toml:3: `},
		{"[server]\n[server]\n", `config.toml:2: `},
		{"\xff", `config.toml:1: `},
		{"[log]\nkeep = -1\nmax_size = \"x\"\n[resume]\nconcurrency = 0\n", "config.toml:2: keep: -1 is not a number from 0 to 1000\n" +
			"config.toml:3: max_size: \"x\" is not a size like \"10MB\"\nconfig.toml:5: concurrency: 0 is not a number from 1 to 64"},
		{"[server]\ngeneration = \"" + strings.Repeat("x", 500) + "\"\n", `config.toml:2: generation: "` + strings.Repeat("x", 59) + `… is not "auto"`},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			_, err := parseConfig("config.toml", []byte(tc.doc))
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("%q:\n got %v\nwant %s", tc.doc, err, tc.want)
			}
		})
	}
}

func TestLoadConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, doc string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := LoadConfig(filepath.Join(dir, "absent.toml"))
	if diff := cmp.Diff(DefaultConfig(), c); err != nil || diff != "" {
		t.Errorf("no file: %v %s", err, diff)
	}
	if c, err := LoadConfig(write("good.toml", "[log]\nkeep = 9\n")); err != nil || c.Log.Keep != 9 {
		t.Errorf("got %+v, %v", c.Log, err)
	}
	bad := write("bad.toml", "[log]\nkep = 9\n")
	if _, err := LoadConfig(bad); err == nil || !strings.HasPrefix(err.Error(), bad+":2: unknown key") {
		t.Errorf("got %v", err)
	}
	if _, err := LoadConfig(write("large.toml", strings.Repeat("#", maxConfig+1))); err == nil || !strings.Contains(err.Error(), "larger than 1024 kB") {
		t.Errorf("got %v", err)
	}
	var path *fs.PathError
	if _, err := LoadConfig(dir); !errors.As(err, &path) {
		t.Errorf("a directory: %v", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, doc := range []string{
		"", "[server]\nport = 1\n", "server = { port = 1, environment = { A = \"b\" } }", "a.b.c = [1, {d = 2}]", "[[a]]\n[[a.b]]\nc = 1",
		"[notify]\nquiet = [\"22:00-07:00\"]", "[log]\nmax_size = \"1e9 GB\"", "x = '''\n\n'''\ny = 1", "\"\\u0000\" = 1", "'' = 1",
	} {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		c, err := parseConfig("f", []byte(doc))
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if strings.HasPrefix(line, "f:0:") {
					t.Errorf("no such line: %s", line)
				}
			}
			return
		}
		switch {
		case c.Server.Port < 0 || c.Server.Port > 65535, c.Resume.Concurrency < 1 || c.Resume.Concurrency > 64,
			c.Server.ReadyTimeout <= 0, c.Server.StopTimeout <= 0, c.Notify.StallAfter <= 0, c.Log.MaxSize <= 0, c.Log.Keep < 0:
			t.Errorf("accepted out of bounds: %+v", c)
		}
	})
}
