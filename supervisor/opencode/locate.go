package opencode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/platform"
)

// versionTimeout bounds one `--version` or `serve --help`: the real one takes
// 1.5 s when idle, and five times that on a loaded machine.
const versionTimeout = 15 * time.Second

// Config says which program to run, and how.
type Config struct {
	Command    []string // program and arguments; empty: opencode, as it is installed
	Generation string   // auto (or empty), v1, v2
	Port       int      // v1 only; 0 leaves the choice to the caller of Spawn
	Env        []string // the whole environment of the server, as os.Environ has it
	Dirs       []string // more directories to look for the program in, before the well-known ones
}

// Install is the program as this user has it. Immutable after Locate.
type Install struct {
	Program    string   // absolute
	Args       []string // what the user has configured after the program
	Env        []string // of the server; its PATH holds the directory of the program
	Version    string   // as the program reports it; "" when it didn't and the generation is forced
	Generation Generation
	Port       int

	stamp stamp
}

// stamp tells whether a file was replaced.
type stamp struct {
	path string // symbolic links resolved
	mod  time.Time
	size int64
}

func stampOf(program string) (stamp, error) {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return stamp{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{path, info.ModTime(), info.Size()}, nil
}

// Fresh tells whether the program is still the file that Locate asked for its
// version, so that a restart need not ask again.
func (i *Install) Fresh() bool {
	now, err := stampOf(i.Program)
	return err == nil && now.path == i.stamp.path && now.size == i.stamp.size && now.mod.Equal(i.stamp.mod)
}

// Outdated gives a copy that isn't fresh: the program is to be looked for again,
// since its environment is another now.
func (i *Install) Outdated() *Install {
	outdated := *i
	outdated.stamp = stamp{}
	return &outdated
}

// Locate finds the program and asks it for its version, for at most 15 s.
// loginPath gives the PATH of the user's login shell; it is called only when the
// server's own PATH doesn't do, and may be nil. The errors to decide by are
// *NotFoundError and *UnsupportedVersionError.
func Locate(ctx context.Context, cfg Config, loginPath func(context.Context) (string, error)) (*Install, error) {
	command := cfg.Command
	if len(command) == 0 {
		command = []string{"opencode"}
	}
	program, path, err := find(ctx, command[0], cfg, loginPath)
	if err != nil {
		return nil, err
	}
	in := &Install{Program: program, Args: slices.Clone(command[1:]), Env: cfg.Env, Port: cfg.Port}
	if path != "" {
		in.Env = environ(cfg.Env).with("PATH", path)
	}
	if in.stamp, err = stampOf(program); err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", program, err)
	}
	if err := in.identify(ctx, cfg.Generation); err != nil {
		return nil, err
	}
	return in, nil
}

// find gives the program's absolute path, and the PATH that the server needs
// when it isn't the one of cfg.Env: a program beside it (node, bun) is often
// what the program itself is run by.
func find(ctx context.Context, name string, cfg Config, loginPath func(context.Context) (string, error)) (program, path string, err error) {
	env := environ(cfg.Env)
	if strings.ContainsAny(name, `/`+string(filepath.Separator)) {
		return findNamed(name, env)
	}
	own := env.get("PATH")
	looked := filepath.SplitList(own)
	var shell error
	if program := lookIn(looked, name); program != "" {
		return program, "", nil
	}
	if loginPath != nil {
		login, err := loginPath(ctx)
		if err != nil {
			shell = err
			looked = append(looked, fmt.Sprintf("the login shell's PATH (%v)", err))
		}
		dirs := filepath.SplitList(login)
		if program := lookIn(dirs, name); program != "" {
			return program, joinPaths(dirs, filepath.SplitList(own)), nil
		}
		looked = append(looked, dirs...)
	}
	known := append(slices.Clone(cfg.Dirs), wellKnown(env)...)
	if program := lookIn(known, name); program != "" {
		return program, joinPaths(filepath.SplitList(own), []string{filepath.Dir(program)}), nil
	}
	return "", "", &NotFoundError{Command: name, Looked: distinct(append(looked, known...)), Shell: shell}
}

// findNamed is find for a configured path; ~ is the home directory.
func findNamed(name string, env environ) (program, path string, err error) {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = filepath.Join(env.home(), rest)
	}
	program, err = exec.LookPath(name)
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		missing := &NotFoundError{Command: filepath.Base(name), Looked: []string{name}, Unfit: "isn't there"}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			missing.Unfit = "is a directory"
		} else if err == nil {
			missing.Unfit = "is not executable"
		}
		return "", "", missing
	}
	return program, "", nil
}

// lookIn gives the first program of that name in dirs; "" for none.
func lookIn(dirs []string, name string) string {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) { // an entry relative to wherever we happen to run is no place to trust
			continue
		}
		if program, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return program
		}
	}
	return ""
}

// wellKnown are the places where installers put the program without always
// putting the place on the PATH: its own installer, npm, bun, pnpm, Homebrew.
func wellKnown(env environ) []string {
	home := env.home()
	dirs := []string{
		filepath.Join(home, ".opencode", "bin"),
		filepath.Join(home, ".local", "bin"),
		filepath.Join(home, ".bun", "bin"),
		filepath.Join(home, ".npm-global", "bin"),
	}
	dirs = append(dirs, platform.InstallerPlaces(home)...)
	for _, place := range []struct{ variable, below string }{
		{"BUN_INSTALL", "bin"}, {"PNPM_HOME", ""}, {"NPM_CONFIG_PREFIX", "bin"}, {"APPDATA", "npm"}, {"LOCALAPPDATA", "pnpm"},
	} {
		if dir := env.get(place.variable); dir != "" {
			dirs = append(dirs, filepath.Join(dir, place.below))
		}
	}
	return dirs
}

// joinPaths joins lists of directories. A relative one would be another place in each session.
func joinPaths(lists ...[]string) string {
	dirs := slices.DeleteFunc(slices.Concat(lists...), func(dir string) bool { return !filepath.IsAbs(dir) })
	return strings.Join(distinct(dirs), string(filepath.ListSeparator))
}

func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// identify asks the program for its version and tells the generation by it.
func (i *Install) identify(ctx context.Context, wanted string) error {
	forced := Generation("")
	if wanted != "" && wanted != "auto" {
		forced = Generation(wanted)
		if forced != V1 && forced != V2 {
			return fmt.Errorf("unknown generation %q: use auto, v1 or v2", wanted)
		}
	}
	out, err := i.ask(ctx, append(i.leading(), "--version")...)
	if err != nil && (forced == "" || ctx.Err() != nil) {
		return fmt.Errorf("cannot ask %s for its version: %w", i.Program, err)
	}
	if err == nil {
		i.Version = versionIn(out)
	}
	if i.Generation = forced; forced == "" {
		i.Generation, err = i.generation(ctx)
	} else {
		err = nil
	}
	return err
}

// generation tells the generation by the version; a build of a branch
// (0.0.0-<channel>-<build>) by whether it has the service mode.
func (i *Install) generation(ctx context.Context) (Generation, error) {
	major, _, _ := strings.Cut(i.Version, ".")
	switch n, err := strconv.Atoi(major); {
	case err != nil:
	case n == 1:
		return V1, nil
	case n == 2:
		return V2, nil
	case strings.HasPrefix(i.Version, "0.0.0-"):
		help, err := i.ask(ctx, append(i.leading(), "serve", "--help")...)
		if err != nil {
			return "", fmt.Errorf("cannot ask %s whether it has a service mode: %w", i.Program, err)
		}
		if strings.Contains(help, "--service") {
			return V2, nil
		}
		return V1, nil
	}
	return "", &UnsupportedVersionError{Program: i.Program, Version: i.Version}
}

// leading are the arguments before "serve": what makes a runner (node, npx, a
// multi-call binary) be opencode.
func (i *Install) leading() []string {
	if at := slices.Index(i.Args, "serve"); at >= 0 {
		return slices.Clone(i.Args[:at])
	}
	return nil
}

// versionForm is a version that stands by itself, after an optional v.
var versionForm = regexp.MustCompile(`(?m)(?:^|\s)v?(\d+\.\d+\.\d+[^\s]*)\s*$`)

// versionIn picks the version out of what --version printed: the end of the
// first line that ends with one, since wrappers print notices around it. What
// has no such line is given back whole, to be shown.
func versionIn(out string) string {
	if m := versionForm.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return strings.TrimSpace(out)
}

// ask runs the program and gives what it printed, at most 64 KiB. Its working
// directory is the home directory, as the server's own.
func (i *Install) ask(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, errors.New("it did not answer in time"))
	defer cancel()
	env := environ(i.Env)
	return run(ctx, append([]string{i.Program}, args...), env.without(notForServer...), env.home())
}
