package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// version is a version of the program in semantic form: 1.2.3, 1.2.3-rc.1,
// 1.2.3+git20261130230516.4f6afca (after it), 0.0.0-git20261130230516.4f6afca (no release yet).
type version string

var versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?(\+[0-9A-Za-z.]+)?$`)

// parseVersion reads a version in its own form, with a v before it, or as a package has it.
func parseVersion(s string) (version, error) {
	v := strings.Replace(strings.TrimPrefix(s, "v"), "~", "-", 1)
	if !versionForm.MatchString(v) {
		return "", fmt.Errorf("%q is no version; one is 1.2.3, or 1.2.3-rc.1 before it", s)
	}
	return version(v), nil
}

// linux is the form of deb and rpm, in which what is before 1.2.3 sorts before it.
func (v version) linux() string { return strings.Replace(string(v), "-", "~", 1) }

// source is which state of the source is built.
type source struct {
	version version
	time    time.Time // of the commit or of the release: what every file is dated
}

// findSource tells what is built: the version that was asked for, else git's, else
// the changelog's, and its time.
func findSource(ctx context.Context, root, asked string) (source, error) {
	s := source{time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} // where nothing tells a time
	released, when := changelogRelease(filepath.Join(root, "CHANGELOG.md"))
	s.version = "0.0.0-dev"
	if released != "" {
		s.version, s.time = released, when
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		if s, err = gitSource(ctx, root); err != nil {
			return source{}, err
		}
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return source{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970: %w", err)
		}
		s.time = time.Unix(seconds, 0).UTC()
	}
	if asked != "" {
		var err error
		if s.version, err = parseVersion(asked); err != nil {
			return source{}, err
		}
	}
	return s, nil
}

var releaseHeading = regexp.MustCompile(`(?m)^## \[([0-9][^\]]*)\] - ([0-9]{4}-[0-9]{2}-[0-9]{2})\s*$`)

// changelogRelease is the newest release that the changelog knows; "" when there is none.
func changelogRelease(path string) (version, time.Time) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", time.Time{}
	}
	found := releaseHeading.FindSubmatch(text)
	if found == nil {
		return "", time.Time{}
	}
	v, err := parseVersion(string(found[1]))
	when, errDate := time.Parse(time.DateOnly, string(found[2]))
	if err != nil || errDate != nil {
		return "", time.Time{}
	}
	return v, when
}

// gitSource is the commit that is checked out: its tag's version, or one that sorts
// behind the tag that came before it.
func gitSource(ctx context.Context, root string) (source, error) {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(exit.Stderr)))
		}
		return strings.TrimSpace(string(out)), err
	}
	head, err := git("log", "-1", "--format=%ct %h", "--abbrev=10")
	if err != nil {
		return source{}, err
	}
	seconds, hash, _ := strings.Cut(head, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, err
	}
	s := source{time: time.Unix(unix, 0).UTC()}
	snapshot := "git" + s.time.Format("20060102150405") + "." + hash
	changed, err := git("status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return source{}, err
	}
	if changed != "" {
		snapshot += ".dirty"
	}
	tag, none := git("describe", "--tags", "--match", "v[0-9]*", "--abbrev=0")
	if none != nil {
		s.version = version("0.0.0-" + snapshot)
		return s, nil //nolint:nilerr // without a tag this is no error
	}
	if s.version, err = parseVersion(tag); err != nil {
		return source{}, err
	}
	ahead, err := git("rev-list", "--count", tag+"..HEAD")
	if err == nil && (ahead != "0" || changed != "") {
		s.version += version("+" + snapshot)
	}
	return s, err
}

// pacman is Arch's form: no hyphen, and letters sort before the end.
func (v version) pacman() string { return strings.Replace(string(v), "-", "", 1) }

// windows is the form of a version resource: four numbers.
func (v version) windows() string {
	core, _, _ := strings.Cut(string(v), "+")
	core, _, _ = strings.Cut(core, "-")
	return core + ".0"
}
