package platform

import (
	"os/user"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestServiceFor(t *testing.T) {
	t.Parallel()
	account, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	home, other := account.HomeDir, filepath.Join(account.HomeDir, "other")
	for _, tt := range []struct {
		name      string
		env, want map[string]string
	}{
		{"nothing moved", map[string]string{"HOME": home, "PATH": "/bin", "XDG_RUNTIME_DIR": "/run/user/1"}, nil},
		{"moved to where it is anyway", map[string]string{"HOME": home, "XDG_DATA_HOME": filepath.Join(home, ".local", "share") + "/"}, nil},
		{"relative is as unset", map[string]string{"HOME": home, "XDG_STATE_HOME": "state"}, nil},
		{"the server's data", map[string]string{"HOME": home, "XDG_DATA_HOME": other}, map[string]string{"XDG_DATA_HOME": other}},
		{"ours", map[string]string{"HOME": home, "INTERMISSION_STATE_DIR": other}, map[string]string{"INTERMISSION_STATE_DIR": other}},
		{"another home", map[string]string{"HOME": other}, map[string]string{"HOME": other}},
		{"no home", map[string]string{}, nil},
	} {
		got := Service{}.For(func(name string) string { return tt.env[name] })
		if diff := cmp.Diff(tt.want, got.Env); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
