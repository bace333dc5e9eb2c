package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"intermission/platform"
)

// proxies are the variables by which programs find a proxy. Both spellings are in use.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}

func isProxy(name string) bool {
	return slices.ContainsFunc(proxies, func(p string) bool { return strings.EqualFold(p, name) })
}

// keptFile is the file of variables that we keep for the server: NAME=VALUE lines,
// which people may edit.
func keptFile(paths platform.Paths) string {
	return filepath.Join(filepath.Dir(paths.ConfigFile), "environment")
}

// keptHeader begins a kept file that we make.
const keptHeader = `# Variables for the OpenCode server: NAME=VALUE, one a line. "intermission service
# install" keeps here the proxies that your login shell doesn't export. A variable
# of the login shell counts more, and one of config.toml most.
`

// loadKept reads the kept file; none is an empty one. Its error names each bad line
// by its number; the good ones are given all the same.
func loadKept(path string) ([]string, error) {
	text, err := readKept(path)
	if err != nil {
		return nil, err
	}
	var entries []string
	var errs []error
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := keptEntry(line)
		if !ok {
			// The line itself may be a password: it isn't shown.
			errs = append(errs, fmt.Errorf("%s:%d: this line is not NAME=VALUE; mend it, or put # before it", path, i+1))
			continue
		}
		entries = append(entries, name+"="+value)
	}
	return entries, errors.Join(errs...)
}

// keptEntry reads one line. Quotes around a value are taken off: shells and systemd
// want them there.
func keptEntry(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, "=")
	if !ok || name == "" || strings.ContainsAny(name, " \t'\"$#") || strings.Contains(line, "\x00") {
		return "", "", false
	}
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') {
		if value[n-1] != value[0] {
			return "", "", false
		}
		value = value[1 : n-1]
	}
	return name, value, true
}

func readKept(path string) (string, error) {
	b, err := platform.ReadTrusted(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the kept variables: %w", err)
	}
	return string(b), nil
}

// KeepProxies keeps the proxies of an environment, the installing shell's, in the
// file "environment" beside config.toml, so that a service has them too. Those that
// the login shell exports by itself are left to it: it is asked, for at most 5 s, and
// one that can't be asked exports none. kept are the names, never nil; a proxy's value
// may hold a password. With nothing to keep nothing is written, and what else stands in
// the file stays.
func KeepProxies(ctx context.Context, paths platform.Paths, environ []string) (kept []string, err error) {
	return keepProxies(ctx, paths, environ, platform.LoginEnvironment)
}

func keepProxies(ctx context.Context, paths platform.Paths, environ []string, ask askLogin) (kept []string, err error) {
	kept = []string{}
	ours := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return !isProxy(name) || strings.TrimSpace(value) == ""
	})
	if len(ours) == 0 {
		return kept, nil
	}
	// Without them, for a shell exports what it was given.
	without := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return isProxy(name)
	})
	var login []string
	if said := askWithin(ctx, ask, without, environmentMemory{}); said.fault == nil {
		login = said.env
	}
	path := keptFile(paths)
	text, err := readKept(path)
	if err != nil {
		return kept, err
	}
	before := text
	for _, entry := range ours {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case slices.ContainsFunc(login, func(entry string) bool {
			exported, _, _ := strings.Cut(entry, "=")
			return strings.EqualFold(exported, name)
		}):
			continue
		case strings.ContainsAny(value, "\n\r\x00"):
			return []string{}, fmt.Errorf("cannot keep %s: its value has more than one line", name)
		}
		text = withKept(text, name, value)
		kept = append(kept, name)
	}
	slices.Sort(kept)
	if text == before {
		return kept, nil
	}
	if err := writeKept(path, text); err != nil {
		return []string{}, err
	}
	return kept, nil
}

// withKept sets one variable in the text of a kept file, in its line if it has one.
func withKept(text, name, value string) string {
	if text == "" {
		text = keptHeader
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	entry, at := name+"="+value, -1
	if value != strings.TrimSpace(value) || strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'") {
		entry = name + `="` + value + `"`
	}
	for i, line := range lines {
		if n, _, ok := keptEntry(strings.TrimSpace(line)); ok && n == name {
			at = i // of several the last counts
		}
	}
	if at < 0 {
		return strings.Join(append(lines, entry), "\n") + "\n"
	}
	lines[at] = entry
	return strings.Join(lines, "\n") + "\n"
}

// writeKept writes the file for its owner alone. Where people keep their configuration
// elsewhere and link to it, the link stays.
func writeKept(path, text string) error {
	if behind, err := filepath.EvalSymlinks(path); err == nil {
		path = behind
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot keep the proxies: %w", err)
	}
	if err := platform.WriteFileAtomic(path, []byte(text)); err != nil {
		return fmt.Errorf("cannot keep the proxies: %w", err)
	}
	return nil
}
