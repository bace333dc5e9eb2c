package opencode

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAttach(t *testing.T) {
	t.Parallel()
	inc := Incarnation{URL: "http://127.0.0.1:4096", Password: "hush"}
	for name, tc := range map[string]struct {
		install Install
		argv    []string
		secret  string
	}{
		"v1":           {Install{Program: "/bin/oc", Generation: V1}, []string{"/bin/oc", "attach", inc.URL, "--session", "ses_1", "--dir", "/d"}, "hush"},
		"v1, a runner": {Install{Program: "/bin/node", Args: []string{"oc.js", "serve", "--port", "1"}, Generation: V1}, []string{"/bin/node", "oc.js", "attach", inc.URL, "--session", "ses_1", "--dir", "/d"}, "hush"},
		"v2":           {Install{Program: "/bin/oc", Args: []string{"serve", "--service"}, Generation: V2}, []string{"/bin/oc", "--session", "ses_1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := slices.Clone(tc.install.Args)
			argv, env := tc.install.Attach(inc, "ses_1", "/d")
			if diff := cmp.Diff(tc.argv, argv); diff != "" {
				t.Error(diff)
			}
			if env["OPENCODE_SERVER_PASSWORD"] != tc.secret || strings.Contains(strings.Join(argv, " "), "hush") {
				t.Errorf("%q with %q", argv, env)
			}
			if !slices.Equal(args, tc.install.Args) {
				t.Errorf("the install was changed: %q", tc.install.Args)
			}
		})
	}
}
