package platform

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// TemporaryProgramError says that a program is a build that goes away: by go run or
// go test, or anything in a directory for temporary files.
type TemporaryProgramError struct{ Program string }

func (e *TemporaryProgramError) Error() string {
	return fmt.Sprintf("%s is a temporary file; put the program where it can stay, ~/.local/bin for one, and run it from there", e.Program)
}

// StableProgram gives the path of a program that stays right when its version
// changes: what may stand in a definition of a service or of an entry at login. path
// is what os.Executable says of it, which often is a directory of one version.
//
// It is a link to the same file that no version is a part of: where the version
// manager has one, on PATH, or in a directory for programs. Shims (asdf, mise, volta,
// snap, nodenv) aren't the same file: they look for the program by its name. One is
// taken only if it runs from the home directory, with the arguments ask, within
// 5 s: without ask none is. Where only the path of one version is there, that one is
// given, and note says so in a sentence for people.
//
// It fails with *TemporaryProgramError, or when the file is gone and nothing took its place.
func StableProgram(ctx context.Context, path string, getenv func(string) string, ask ...string) (stable, note string, err error) {
	s := stability{getenv: getenv, temporary: temporaryDirs(getenv), ask: ask}
	return s.find(ctx, path)
}

// stability is one search.
type stability struct {
	getenv    func(string) string
	temporary []string // directories
	ask       []string
}

const shimLimit = 5 * time.Second

// deletedSuffix is what Linux appends to the path of a program whose file was removed
// or replaced, proc(5).
const deletedSuffix = " (deleted)"

func (s stability) find(ctx context.Context, path string) (stable, note string, err error) {
	if !filepath.IsAbs(path) {
		return "", "", fmt.Errorf("%q is no absolute path of a program", path)
	}
	path = filepath.Clean(path)
	info, err := os.Stat(path)
	if replaced, is := strings.CutSuffix(path, deletedSuffix); is && err != nil {
		path = replaced
		info, err = os.Stat(path)
	}
	if err == nil && strings.Contains(filepath.ToSlash(path), "/fnm_multishells/") {
		path, err = filepath.EvalSymlinks(path) // the link goes with the shell
	}
	if s.isTemporary(path) {
		return "", "", &TemporaryProgramError{path}
	}
	if err == nil && !ofOneVersion(path) {
		return path, "", nil
	}
	gone := err != nil
	places := s.places(path)
	for _, candidate := range places {
		if found, err := os.Stat(candidate); err == nil && isProgram(found) && !gone && os.SameFile(found, info) {
			return candidate, "", nil
		}
	}
	for _, candidate := range places {
		if gone || dispatches(candidate) {
			if found, err := os.Stat(candidate); err == nil && isProgram(found) && s.answers(ctx, candidate) {
				return candidate, "", nil
			}
		}
	}
	if gone {
		return "", "", fmt.Errorf("%s is gone, and no other is on PATH; install it again: %w", path, err)
	}
	return path, fmt.Sprintf("%s belongs to one version, and nothing that stays leads to it: "+
		"after an upgrade that removes it, do this again.", path), nil
}

// answers tells whether a program that is found by name is there, seen from the home directory.
func (s stability) answers(ctx context.Context, program string) bool {
	if len(s.ask) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, shimLimit)
	defer cancel()
	return runsFrom(ctx, s.home(), program, s.ask) == nil
}

func (s stability) home() string {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir := s.getenv(name); filepath.IsAbs(dir) {
			return dir
		}
	}
	return ""
}

func (s stability) isTemporary(path string) bool {
	slashed := filepath.ToSlash(path)
	return goBuild.MatchString(slashed) || slices.ContainsFunc(s.temporary, func(dir string) bool {
		rest, err := filepath.Rel(dir, path)
		return err == nil && rest != ".." && !strings.HasPrefix(rest, ".."+string(filepath.Separator))
	})
}

func temporaryDirs(getenv func(string) string) []string {
	dirs := []string{os.TempDir()}
	for _, name := range []string{"TMPDIR", "TMP", "TEMP", "GOTMPDIR"} {
		if dir := getenv(name); filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Forms of paths, with slashes.
var (
	goBuild = regexp.MustCompile(`/go-build\d*/`) // go run and go test; go run keeps some in its cache
	// ofVersion are directories that one version has: of fnm, nvm, n, nodenv and the
	// like, mise and asdf, volta, Homebrew, Nix, pnpm, snap, winget and scoop; and any
	// that looks like it.
	ofVersion = []*regexp.Regexp{
		regexp.MustCompile(`/fnm_multishells/|/node-versions/|/versions/|/tools/image/|/Cellar/|^/nix/store/|/\.pnpm/|/WinGet/Packages/`),
		regexp.MustCompile(`^/snap/[^/]+/x?\d+/`),
		regexp.MustCompile(`/v?\d+\.\d+[^/]*/`),
		regexp.MustCompile(`[-@_]v?\d+\.\d+[^/]*/`),
	}
	ofInstall = regexp.MustCompile(`(?i)^(.*/(?:\.?asdf|mise|rtx)/installs/[^/]+|.*/scoop/apps/[^/]+|.*/candidates/[^/]+)/([^/]+)(/.*)$`)
	// shimPlaces hold programs that look for another one by its name.
	shimPlaces = regexp.MustCompile(`(?i)/shims/[^/]+$|/\.?volta/bin/[^/]+$|^/(?:var/lib/snapd/)?snap/bin/[^/]+$`)
)

func ofOneVersion(path string) bool {
	path = filepath.ToSlash(path)
	if m := ofInstall.FindStringSubmatch(path); m != nil {
		return m[2] != "latest" && m[2] != "current"
	}
	return slices.ContainsFunc(ofVersion, func(form *regexp.Regexp) bool { return form.MatchString(path) })
}

func dispatches(path string) bool { return shimPlaces.MatchString(filepath.ToSlash(path)) }

// besides are the places that a manager has for the program of one of its versions,
// best first; %s is the program's name.
var besides = []struct {
	form   *regexp.Regexp
	places []string
}{
	{regexp.MustCompile(`^(.*)/Cellar/([^/]+)/`), []string{"$1/bin/%s", "$1/opt/$2/bin/%s"}},
	{regexp.MustCompile(`^(.*/WinGet)/Packages/`), []string{"$1/Links/%s"}},
	{regexp.MustCompile(`(?i)^(.*/scoop)/apps/([^/]+)/`), []string{"$1/apps/$2/current/%s", "$1/shims/%s"}},
	{regexp.MustCompile(`^(.*/(?:\.?asdf|mise|rtx))/installs/([^/]+)/`), []string{"$1/installs/$2/latest/bin/%s", "$1/shims/%s"}},
	{regexp.MustCompile(`^(.*/candidates/[^/]+)/`), []string{"$1/current/bin/%s"}},
	{regexp.MustCompile(`^(.*)/tools/image/`), []string{"$1/bin/%s"}},
	{regexp.MustCompile(`^(.*)/node-versions/`), []string{"$1/aliases/default/bin/%s"}},
	{regexp.MustCompile(`^(.*)/versions/`), []string{"$1/current/bin/%s", "$1/shims/%s"}},
	{regexp.MustCompile(`^/snap/([^/]+)/`), []string{"/snap/bin/%s", "/var/lib/snapd/snap/bin/%s"}},
}

// places are where else the program may be, best first, none of one version or temporary.
func (s stability) places(path string) []string {
	name, home := filepath.Base(path), s.home()
	var places []string
	for _, b := range besides {
		m := b.form.FindStringSubmatchIndex(filepath.ToSlash(path))
		for _, place := range b.places {
			if m != nil {
				at := b.form.ExpandString(nil, strings.ReplaceAll(place, "%s", ""), filepath.ToSlash(path), m)
				places = append(places, filepath.Join(filepath.FromSlash(string(at)), name))
			}
		}
	}
	dirs := filepath.SplitList(s.getenv("PATH"))
	if home != "" {
		for _, dir := range []string{".nix-profile/bin", ".local/state/nix/profile/bin", ".local/bin", "bin", ".local/share/mise/shims", ".asdf/shims", ".volta/bin"} {
			dirs = append(dirs, filepath.Join(home, filepath.FromSlash(dir)))
		}
	}
	dirs = append(dirs, commonPrograms(s.getenv)...)
	for _, dir := range dirs {
		places = append(places, filepath.Join(dir, name))
	}
	return slices.DeleteFunc(places, func(p string) bool {
		return !filepath.IsAbs(p) || p == path || ofOneVersion(p) || s.isTemporary(p)
	})
}
