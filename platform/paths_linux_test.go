package platform

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFindPaths(t *testing.T) {
	t.Parallel()
	home := Paths{
		ConfigFile:   "/home/u/.config/intermission/config.toml",
		State:        "/home/u/.local/state/intermission",
		Log:          "/home/u/.local/state/intermission/log",
		Runtime:      "/home/u/.local/state/intermission",
		Ledger:       "/home/u/.local/state/intermission/ledger.db",
		Socket:       "/home/u/.local/state/intermission/intermission.sock",
		InstanceLock: "/home/u/.local/state/intermission/instance.lock",
		ServerRecord: "/home/u/.local/state/intermission/server.json",
	}
	xdg := Paths{
		ConfigFile:   "/c/intermission/config.toml",
		State:        "/s/intermission",
		Log:          "/s/intermission/log",
		Runtime:      "/r/intermission",
		Ledger:       "/s/intermission/ledger.db",
		Socket:       "/r/intermission/intermission.sock",
		InstanceLock: "/r/intermission/instance.lock",
		ServerRecord: "/s/intermission/server.json",
	}
	own := Paths{
		ConfigFile:   "/etc/my.toml",
		State:        "/state",
		Log:          "/state/log",
		Runtime:      "/run/me",
		Ledger:       "/state/ledger.db",
		Socket:       "/run/me/intermission.sock",
		InstanceLock: "/run/me/instance.lock",
		ServerRecord: "/state/server.json",
	}
	long := "/" + strings.Repeat("x", 89) // with "/intermission.sock" just one byte too long
	fits := own
	fits.Runtime = long[:89]
	fits.Socket, fits.InstanceLock = fits.Runtime+"/intermission.sock", fits.Runtime+"/instance.lock"
	overrides := map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "/c", envConfig: "/etc/my.toml", envState: "/state/", envRuntime: "/run/me"}
	with := func(m map[string]string, k, v string) map[string]string {
		out := map[string]string{k: v}
		for key, value := range m {
			if key != k {
				out[key] = value
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want Paths
		err  string
	}{
		{name: "home only", env: map[string]string{"HOME": "/home/u"}, want: home},
		{name: "XDG", env: map[string]string{"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}, want: xdg},
		{name: "relative XDG is ignored", env: map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "s", "XDG_RUNTIME_DIR": "r"}, want: home},
		{name: "overrides", env: overrides, want: own},
		{name: "overrides need no home", env: with(overrides, "HOME", ""), want: own},
		{name: "longest socket", env: with(overrides, envRuntime, fits.Runtime), want: fits},
		{name: "socket too long", env: with(overrides, envRuntime, long), err: "has 108 bytes, the system allows 107; set INTERMISSION_RUNTIME_DIR"},
		{name: "relative config", env: with(overrides, envConfig, "my.toml"), err: `INTERMISSION_CONFIG is "my.toml", which is relative`},
		{name: "relative state", env: with(overrides, envState, "state"), err: "INTERMISSION_STATE_DIR"},
		{name: "relative runtime", env: with(overrides, envRuntime, "./run"), err: "INTERMISSION_RUNTIME_DIR"},
		{name: "nothing known", env: nil, err: "set HOME"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := FindPaths(func(k string) string { return tt.env[k] })
			checkError(t, err, tt.err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheSocketIsRecordedAnewAtEachStart(t *testing.T) {
	t.Parallel()
	p := Paths{State: t.TempDir(), Socket: "/run/me/intermission.sock"}
	var files []os.FileInfo
	for range 2 {
		if err := p.RecordSocket(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(p.SocketRecord())
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, info)
	}
	if os.SameFile(files[0], files[1]) {
		t.Error("the second start left the file of the first: nobody who watches the directory would hear of it")
	}
	if got := p.LiveSocket(); got != p.Socket {
		t.Errorf("the recorded socket is %q, not %q", got, p.Socket)
	}
}
