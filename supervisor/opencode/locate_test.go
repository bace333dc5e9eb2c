package opencode

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// place puts the test binary at dir under the name opencode.
func place(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "opencode")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	return program
}

func TestLocateLooksInOrder(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"configured", "path", "login", "extra", "known", "nowhere"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			at := func(name string) string { return filepath.Join(root, name, "bin") }
			cfg := Config{
				Dirs: []string{at("extra")},
				Env: []string{
					"FAKE_OPENCODE=answer", "FAKE_VERSION=1.18.33", "HOME=" + filepath.Join(root, "home"),
					"PATH=" + at("path") + string(filepath.ListSeparator) + "relative" + string(filepath.ListSeparator) + at("other"),
				},
			}
			dirs := map[string]string{
				"configured": at("configured"), "path": at("path"), "login": at("login"),
				"extra": at("extra"), "known": filepath.Join(root, "home", ".opencode", "bin"),
			}
			program := ""
			if dir, ok := dirs[where]; ok {
				program = place(t, dir)
			}
			if where == "configured" {
				cfg.Command = []string{program, "serve"}
			}
			in, err := Locate(t.Context(), cfg, func(context.Context) (string, error) {
				return at("login") + string(filepath.ListSeparator) + at("login2"), nil
			})
			if where == "nowhere" {
				var missing *NotFoundError
				if !errors.As(err, &missing) {
					t.Fatalf("got %v, want a NotFoundError", err)
				}
				for _, dir := range []string{at("path"), at("login2"), at("extra"), dirs["known"]} {
					if !slices.Contains(missing.Looked, dir) {
						t.Errorf("%s is not among the places: %v", dir, missing)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if in.Program != program || in.Version != "1.18.33" || in.Generation != V1 {
				t.Errorf("got %+v, want %s", in, program)
			}
			path := filepath.SplitList(environ(in.Env).get("PATH"))
			if where != "configured" && !slices.Contains(path, filepath.Dir(program)) {
				t.Errorf("the server's PATH %q lacks the directory of the program", path)
			}
			if where != "configured" && where != "path" && slices.Contains(path, "relative") {
				t.Errorf("the server's PATH %q has a relative directory", path)
			}
			if !slices.Contains(path, at("other")) {
				t.Errorf("the server's PATH %q has lost what it had", path)
			}
		})
	}
}

func TestLocateSaysWhatFailsOfALoginShell(t *testing.T) {
	t.Parallel()
	_, err := Locate(t.Context(), Config{Env: []string{"HOME=" + t.TempDir(), "PATH="}}, func(context.Context) (string, error) {
		return "", errors.New("the shell hangs")
	})
	if err == nil || !strings.Contains(err.Error(), "the shell hangs") {
		t.Errorf("got %v", err)
	}
}

func TestLocateTellsGenerations(t *testing.T) {
	t.Parallel()
	program := place(t, t.TempDir())
	for _, c := range []struct {
		mode, version, help, forced string
		want                        Generation
		version2                    string
		unsupported                 bool
	}{
		{version: "1.18.33", want: V1, version2: "1.18.33"},
		{version: "opencode v1.19.0", want: V1, version2: "1.19.0"},
		{version: "2.2.0", want: V2, version2: "2.2.0"},
		{version: "0.0.0-next-2026-1", help: "  --service  run as the service", want: V2, version2: "0.0.0-next-2026-1"},
		{version: "0.0.0-dev-1", help: "  --port", want: V1, version2: "0.0.0-dev-1"},
		{version: "3.0.0", unsupported: true},
		{version: "what?", unsupported: true},
		{version: "", unsupported: true},
		{version: "3.0.0", forced: "v2", want: V2, version2: "3.0.0"},
		{mode: "fail", forced: "v1", want: V1},
	} {
		t.Run(c.mode+c.version+c.forced, func(t *testing.T) {
			t.Parallel()
			env := []string{"FAKE_OPENCODE=" + cmp.Or(c.mode, "answer"), "FAKE_VERSION=" + c.version, "FAKE_HELP=" + c.help}
			in, err := Locate(t.Context(), Config{Command: []string{program}, Generation: c.forced, Env: env}, nil)
			var unsupported *UnsupportedVersionError
			if errors.As(err, &unsupported) != c.unsupported || err != nil && !c.unsupported {
				t.Fatalf("got %v", err)
			}
			if err == nil && (in.Generation != c.want || in.Version != c.version2) {
				t.Errorf("got %s %q, want %s %q", in.Generation, in.Version, c.want, c.version2)
			}
		})
	}
}

func TestLocateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, script := place(t, dir), filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"fails":      {Config{Command: []string{program}, Env: []string{"FAKE_OPENCODE=fail"}}, "no such thing"},
		"generation": {Config{Command: []string{program}, Env: []string{"FAKE_OPENCODE=answer"}, Generation: "v3"}, "use auto, v1 or v2"},
		"directory":  {Config{Command: []string{dir}}, dir + " is a directory; name a program"},
		"script":     {Config{Command: []string{script}}, script + " is not executable; name a program"},
		"nothing":    {Config{Command: []string{dir + "/none"}}, "/none isn't there; name a program"},
	} {
		if _, err := Locate(t.Context(), c.cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestLocateAsksTheRunnerAndHidesTheServiceManager(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	env := []string{"FAKE_OPENCODE=answer", "FAKE_VERSION=2.1.0", "FAKE_LOG=" + log, "NOTIFY_SOCKET=/run/x"}
	command := []string{place(t, t.TempDir()), "devserver", "serve", "--service"}
	if _, err := Locate(t.Context(), Config{Command: command, Env: env}, nil); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(log); string(got) != "devserver --version|" {
		t.Errorf("the program was asked %q", got)
	}
}

func TestLocateEndsAProgramThatHangs(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "pids")
	program := place(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := Locate(ctx, Config{Command: []string{program}, Env: []string{"FAKE_OPENCODE=hang", "FAKE_LOG=" + log}}, nil)
		failed <- err
	}()
	var pids []string
	poll(t, "the program runs", func() bool {
		text, err := os.ReadFile(log)
		pids = strings.Fields(string(text))
		return err == nil
	})
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Locate hangs too")
	}
	for _, pid := range pids {
		n, _ := strconv.Atoi(pid)
		poll(t, "process "+pid+" has ended", func() bool { return !alive(n) })
	}
}

func TestInstallFresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := place(t, dir)
	in, err := Locate(t.Context(), Config{Command: []string{program}, Env: []string{"FAKE_OPENCODE=answer", "FAKE_VERSION=2.0.0"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !in.Fresh() {
		t.Error("not fresh, though nothing happened")
	}
	if in.Outdated().Fresh() || !in.Fresh() {
		t.Error("what is outdated is fresh, or the program itself isn't any more")
	}
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("another program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, program); err != nil {
		t.Fatal(err)
	}
	if in.Fresh() {
		t.Error("fresh, though the program was replaced")
	}
	_ = os.Remove(program)
	if in.Fresh() {
		t.Error("fresh, though the program is gone")
	}
}

func TestUnsupportedVersionShowsOneLine(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"true (GNU coreutils) 9.1\nCopyright\n": `reports version "true (GNU coreutils) 9.1", which`,
		strings.Repeat("é", 61):                 `reports version "` + strings.Repeat("é", 60) + `…", which`,
		"\n":                                    `reports version "", which`,
	} {
		if got := (&UnsupportedVersionError{Program: "/bin/true", Version: version}).Error(); !strings.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
}

// An advice to change the configuration says what it takes to be read.
func TestAdviceToConfigureIsWhole(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&NotFoundError{Command: "opencode", Looked: []string{"/bin", "/usr/bin"}},
		&NotFoundError{Command: "/bin", Looked: []string{"/bin"}, Unfit: "is a directory"},
		&UnsupportedVersionError{Program: "/bin/true", Version: "9"},
	} {
		if text := err.Error(); !strings.Contains(text, "config.toml") || !strings.Contains(text, "run: intermission service restart") {
			t.Errorf("%T: %s", err, text)
		}
		if text := err.Error(); strings.Count(text, "; ") != 1 {
			t.Errorf("%T: what is wrong and the act can't be told apart: %s", err, text)
		}
	}
}
