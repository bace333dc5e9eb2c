package demo

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"intermission/supervisor"
)

// Whatever the user has set, nothing on a machine of the demo leads out of it.
func TestMachineIsApart(t *testing.T) {
	root := t.TempDir() // before TMPDIR is another's
	given := []string{
		"PATH=/bin", "HOME=/home/u", "Home=/home/u", "XDG_STATE_HOME=/home/u/state", "XDG_DATA_DIRS=/usr/share", "xdg_data_home=/home/u/data",
		"TMPDIR=/home/u/tmp", "INTERMISSION_CONFIG=/home/u/config.toml", "INTERMISSION_STATE_DIR=/home/u/ledger",
		"INTERMISSION_DEVSERVER_FAULT=crash", "OPENCODE_DB=/home/u/opencode.db", "OPENCODE_CONFIG=/home/u/opencode.json", "LocalAppData=/home/u/local",
	}
	for _, entry := range given {
		if name, value, _ := strings.Cut(entry, "="); name == strings.ToUpper(name) {
			t.Setenv(name, value)
		}
	}
	m, err := newMachine("/opt/intermission", root, "MORE=1")
	if err != nil {
		t.Fatal(err)
	}
	env := m.environment(given)
	for _, entry := range append(env, m.env...) {
		if strings.Contains(entry, "/home/u") || strings.Contains(entry, "crash") || strings.Contains(entry, "/usr/share") {
			t.Errorf("%s is the user's", entry)
		}
	}
	if !slices.Contains(env, "PATH=/bin") || m.getenv("MORE") != "1" {
		t.Errorf("the environment lacks something: %q", env)
	}
	for _, path := range []string{m.paths.ConfigFile, m.paths.State, m.paths.Ledger, m.paths.InstanceLock, m.getenv("HOME"), m.getenv("XDG_DATA_HOME")} {
		if !strings.HasPrefix(path, root+string(filepath.Separator)) {
			t.Errorf("%s is not below %s", path, root)
		}
	}
	config, err := supervisor.LoadConfig(m.paths.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/opt/intermission", "devserver", "serve", "--service"}; !slices.Equal(config.Server.Command, want) {
		t.Errorf("the server's command is %q, want %q", config.Server.Command, want)
	}
}
