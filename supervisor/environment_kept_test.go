package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"intermission/platform"
)

func TestKeptFileNamesItsBadLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "environment")
	if got, err := loadKept(path); err != nil || len(got) > 0 {
		t.Errorf("no file: %q, %v", got, err)
	}
	text := "# a comment\n\n A=1 \r\nB=\"two words\"\nC='x=y'\nexport D=secret\nsecret\n=secret\nE=\nF=\"secret\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := loadKept(path)
	if diff := cmp.Diff([]string{"A=1", "B=two words", "C=x=y", "E="}, got); diff != "" {
		t.Error(diff)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, line := range []string{":6:", ":7:", ":8:", ":10:"} {
		if !strings.Contains(err.Error(), path+line) {
			t.Errorf("%s is not named: %v", line, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("a value is shown: %v", err)
	}
}

func TestKeepProxies(t *testing.T) {
	t.Parallel()
	paths := platform.Paths{ConfigFile: filepath.Join(t.TempDir(), "intermission", "config.toml")}
	// A shell exports what it was given, and what its start-up files set.
	login := func(exports ...string) askLogin {
		return func(_ context.Context, given []string) ([]string, error) { return append(given, exports...), nil }
	}
	keep := func(ask askLogin, environ ...string) []string {
		t.Helper()
		kept, err := keepProxies(t.Context(), paths, append(environ, "PATH=/bin", "SECRET=1"), ask)
		if err != nil || kept == nil {
			t.Fatalf("%q, %v", kept, err)
		}
		return kept
	}
	if kept := keep(login()); len(kept) > 0 {
		t.Errorf("kept %q", kept)
	}
	if _, err := os.Stat(keptFile(paths)); err == nil {
		t.Error("a file was written with nothing to keep")
	}
	kept := keep(login("HTTP_PROXY=http://login"), "http_proxy=http://a", "HTTPS_PROXY=http://u:p@b", "no_proxy=", "NO_PROXY=localhost")
	if diff := cmp.Diff([]string{"HTTPS_PROXY", "NO_PROXY"}, kept); diff != "" {
		t.Error(diff)
	}
	// The user edits it, and installs again.
	path := keptFile(paths)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, "# mine\nOTHER=x\nbad line\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	keep(func(context.Context, []string) ([]string, error) { return nil, errors.New("it hangs") }, "HTTPS_PROXY=http://c", "ALL_PROXY= socks ")
	got, err := loadKept(path)
	if diff := cmp.Diff([]string{"HTTPS_PROXY=http://c", "NO_PROXY=localhost", "OTHER=x", "ALL_PROXY= socks "}, got); diff != "" || err == nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if text, _ := os.ReadFile(path); !strings.Contains(string(text), "# mine\n") || strings.Count(string(text), "HTTPS_PROXY=") != 1 {
		t.Errorf("now it is\n%s", text)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if kept, err := keepProxies(t.Context(), paths, []string{"HTTP_PROXY=a\nb"}, login()); err == nil || len(kept) > 0 {
		t.Errorf("kept %q, %v", kept, err)
	}
}
