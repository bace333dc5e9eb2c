package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestWhatLeadsToAFile(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, d := range []string{at("bin"), at("node", "v20", "bin")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		at("node", "latest"):                 "v20",
		at("bin", "opencode"):                "../node/latest/bin/opencode",
		at("node", "v20", "bin", "opencode"): at("node", "v20", "missing", "opencode"),
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	names := leading(at("bin", "opencode"))
	for where, want := range map[string][]string{
		at("bin"): {"opencode"}, at("node"): {"latest"}, at("node", "v20"): {"missing"}, at("node", "v20", "bin"): {"opencode"}, dir: nil,
	} {
		got := slices.Sorted(slices.Values(names[where]))
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", where, got, want)
		}
	}
	if got := names["/"]; got != nil {
		t.Errorf("the root is watched for %q", got)
	}
	if err := os.Symlink("loop", at("loop")); err != nil {
		t.Fatal(err)
	}
	leading(at("loop")) // ends
}

// The directories above the program's own aren't watched: it is noticed all the same
// that another one is put in its place, that it ends, and that it comes again.
func TestAProgramsDirectoryIsReplaced(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "versions", "now", "opencode")
	mkdir := func(path string) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Error(err)
		}
	}
	mkdir(filepath.Dir(program))
	put(t, program, "2.2.0")
	looked := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- replacement{
			files:  func() []string { return []string{program} },
			settle: 10 * time.Millisecond,
			look:   func() time.Duration { looked <- struct{}{}; return 0 },
		}.watch(ctx)
	}()
	await := func(what string) {
		select {
		case <-looked:
		case <-time.After(20 * time.Second):
			t.Fatal("nobody looked after " + what)
		}
	}
	await("the beginning")
	put(t, program, "2.3.0")
	await("a replacement")
	versions := filepath.Join(dir, "versions")
	mkdir(filepath.Join(versions, "next"))
	put(t, filepath.Join(versions, "next", "opencode"), "2.4.0")
	for _, rename := range [][2]string{{"now", "old"}, {"next", "now"}} {
		if err := os.Rename(filepath.Join(versions, rename[0]), filepath.Join(versions, rename[1])); err != nil {
			t.Fatal(err)
		}
	}
	await("its directory was put in its place")
	for len(looked) > 0 { // a burst may be looked at in two parts
		<-looked
	}
	put(t, program, "2.5.0")
	await("a replacement in that")
	if err := os.RemoveAll(versions); err != nil {
		t.Fatal(err)
	}
	await("its end")
	mkdir(filepath.Dir(program))
	put(t, program, "2.6.0")
	await("its return")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
