//go:build unix

package platform

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes files, and links where the content begins with "->", in a directory of
// its own, which it gives. ~ is that directory, in links too.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for name, content := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if to, link := strings.CutPrefix(content, "->"); link {
			must(t, os.Symlink(strings.Replace(to, "~", root, 1), path))
			continue
		}
		must(t, writeProgram(path, []byte(content)))
	}
	return root
}

const (
	genuine  = "#!/bin/sh\nexit 0\n"
	goodShim = "#!/bin/sh\n# finds the program by its name\n[ \"$1\" = version ]\n"
	lostShim = "#!/bin/sh\necho no version is set >&2\nexit 126\n"
)

func TestStableProgram(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		files map[string]string
		path  string // of the program, below the tree
		on    string // PATH, below the tree
		want  string // "" wants the path itself, with a note
	}{
		{"an own directory", map[string]string{"bin/x": genuine}, "bin/x", "", "bin/x"},
		{"a link is no better than a place that stays", map[string]string{"src/x": genuine, "bin/x": "->~/src/x"}, "src/x", "bin", "src/x"},
		{"a version in the name", map[string]string{"opt/x-1.2.0/bin/x": genuine, "usr/bin/x": "->~/opt/x-1.2.0/bin/x"}, "opt/x-1.2.0/bin/x", "usr/bin", "usr/bin/x"},
		{"a link through a link", map[string]string{"opt/x-1.2.0/x": genuine, "opt/x": "->~/opt/x-1.2.0", "usr/bin/x": "->~/opt/x/x"}, "opt/x-1.2.0/x", "usr/bin", "usr/bin/x"},
		{"another program of that name", map[string]string{"opt/x-1.2.0/x": genuine, "usr/bin/x": genuine}, "opt/x-1.2.0/x", "usr/bin", ""},
		{"nvm", map[string]string{".nvm/versions/node/v20.1.0/bin/x": genuine}, ".nvm/versions/node/v20.1.0/bin/x", ".nvm/versions/node/v20.1.0/bin", ""},
		{"nvm, linked", map[string]string{".nvm/versions/node/v20.1.0/bin/x": genuine, ".nvm/current": "->~/.nvm/versions/node/v20.1.0"}, ".nvm/versions/node/v20.1.0/bin/x", "", ".nvm/current/bin/x"},
		{"nvm, linked by hand", map[string]string{".nvm/versions/node/v20.1.0/bin/x": genuine, ".local/bin/x": "->~/.nvm/versions/node/v20.1.0/bin/x"}, ".nvm/versions/node/v20.1.0/bin/x", "", ".local/bin/x"},
		{"fnm", map[string]string{
			".local/share/fnm/node-versions/v20.1.0/installation/bin/x": genuine,
			".local/share/fnm/aliases/default":                          "->~/.local/share/fnm/node-versions/v20.1.0/installation",
			"run/fnm_multishells/1_2":                                   "->~/.local/share/fnm/node-versions/v20.1.0/installation",
		}, "run/fnm_multishells/1_2/bin/x", "run/fnm_multishells/1_2/bin", ".local/share/fnm/aliases/default/bin/x"},
		{"mise", map[string]string{".local/share/mise/installs/x/1.2/bin/x": genuine, ".local/share/mise/shims/x": goodShim}, ".local/share/mise/installs/x/1.2/bin/x", "", ".local/share/mise/shims/x"},
		{"mise, newest", map[string]string{
			".local/share/mise/installs/x/1.2/bin/x": genuine, ".local/share/mise/installs/x/latest": "->./1.2", ".local/share/mise/shims/x": goodShim,
		}, ".local/share/mise/installs/x/1.2/bin/x", "", ".local/share/mise/installs/x/latest/bin/x"},
		{"asdf", map[string]string{".asdf/installs/x/1.2/bin/x": genuine, ".asdf/shims/x": goodShim}, ".asdf/installs/x/1.2/bin/x", "", ".asdf/shims/x"},
		{"asdf, no version set", map[string]string{".asdf/installs/x/1.2/bin/x": genuine, ".asdf/shims/x": lostShim}, ".asdf/installs/x/1.2/bin/x", ".asdf/shims", ""},
		{"asdf, another shim", map[string]string{".asdf/installs/x/1.2/bin/x": genuine, ".asdf/shims/y": goodShim}, ".asdf/installs/x/1.2/bin/x", "", ""},
		{"nodenv", map[string]string{".nodenv/versions/20.1.0/bin/x": genuine, ".nodenv/shims/x": goodShim}, ".nodenv/versions/20.1.0/bin/x", "", ".nodenv/shims/x"},
		{"volta", map[string]string{".volta/tools/image/packages/x/bin/x": genuine, ".volta/bin/x": goodShim}, ".volta/tools/image/packages/x/bin/x", "", ".volta/bin/x"},
		{"Homebrew", map[string]string{"brew/Cellar/x/1.2_1/bin/x": genuine, "brew/bin/x": "->../Cellar/x/1.2_1/bin/x"}, "brew/Cellar/x/1.2_1/bin/x", "", "brew/bin/x"},
		{"Homebrew, not linked", map[string]string{"brew/Cellar/x/1.2/bin/x": genuine, "brew/opt/x": "->../Cellar/x/1.2"}, "brew/Cellar/x/1.2/bin/x", "", "brew/opt/x/bin/x"},
		{"pnpm", map[string]string{"pnpm/global/5/.pnpm/x/bin/x": genuine, "pnpm/x": "->~/pnpm/global/5/.pnpm/x/bin/x"}, "pnpm/global/5/.pnpm/x/bin/x", "pnpm", "pnpm/x"},
		{"scoop", map[string]string{"scoop/apps/x/1.2.0/x": genuine, "scoop/apps/x/current": "->1.2.0", "scoop/shims/x": goodShim}, "scoop/apps/x/1.2.0/x", "", "scoop/apps/x/current/x"},
		{"winget", map[string]string{"Microsoft/WinGet/Packages/a.x_b/x": genuine, "Microsoft/WinGet/Links/x": "->../Packages/a.x_b/x"}, "Microsoft/WinGet/Packages/a.x_b/x", "", "Microsoft/WinGet/Links/x"},
		{"replaced", map[string]string{"bin/x": genuine}, "bin/x (deleted)", "", "bin/x"},
		{"a name like that", map[string]string{"bin/x (deleted)": genuine}, "bin/x (deleted)", "", "bin/x (deleted)"},
		{"removed, the next one linked", map[string]string{"brew/Cellar/x/1.3/bin/x": goodShim, "brew/bin/x": "->../Cellar/x/1.3/bin/x"}, "brew/Cellar/x/1.2/bin/x (deleted)", "", "brew/bin/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := tree(t, tt.files)
			path := filepath.Join(root, tt.path)
			// Nor is a relative directory, or one of a shell, taken, though the file is there.
			env := map[string]string{"HOME": root, "PATH": "bin:.:" + filepath.Join(root, tt.on)}
			if tt.on == "" {
				env["PATH"] = ":/bin"
			}
			s := stability{getenv: func(name string) string { return env[name] }, temporary: []string{filepath.Join(root, "tmp")}, ask: []string{"version"}}
			got, note, err := s.find(t.Context(), path)
			must(t, err)
			want := filepath.Join(root, tt.want)
			if tt.want == "" {
				want = path
			}
			if got != want || (note != "") != (tt.want == "") {
				t.Errorf("got %s, want %s; note %q", got, want, note)
			}
		})
	}
}

func TestStableProgramIsRefused(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"tmp/x": genuine, "tmp/go-build123/b001/exe/x": genuine, ".cache/go-build/ab/abc-d/x": genuine, "tmpfile/x": genuine,
		"bin/y": "->~/tmp/y", "opt/y-1.2/y": genuine,
	})
	s := stability{getenv: func(string) string { return "" }, temporary: []string{filepath.Join(root, "tmp")}}
	for path, temporary := range map[string]bool{
		"tmp/x": true, "tmp/go-build123/b001/exe/x": true, ".cache/go-build/ab/abc-d/x": true, "gone/x (deleted)": false, "gone-1.2/x": false,
	} {
		_, _, err := s.find(t.Context(), filepath.Join(root, path))
		var refused *TemporaryProgramError
		if err == nil || errors.As(err, &refused) != temporary {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, _, err := s.find(t.Context(), "bin/x"); err == nil {
		t.Error("a relative path is taken")
	}
	if got, _, err := s.find(t.Context(), filepath.Join(root, "tmpfile/x")); err != nil || got != filepath.Join(root, "tmpfile/x") {
		t.Errorf("%s, %v", got, err)
	}
	self, err := os.Executable()
	must(t, err)
	var refused *TemporaryProgramError
	if _, _, err := StableProgram(t.Context(), self, os.Getenv); !errors.As(err, &refused) {
		t.Errorf("this test: %v", err)
	}
}
