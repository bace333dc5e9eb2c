//go:build linux

package wine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// One Windows is made for all tests: that takes longer than most of them.
var made struct {
	sync.Once
	dir string
	b   *Bench
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if made.b != nil {
		if err := made.b.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "wine:", err)
		}
	}
	if made.dir != "" {
		if err := os.RemoveAll(made.dir); err != nil {
			fmt.Fprintln(os.Stderr, "wine: what can't be removed:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// startBench gives the Windows of all tests. Without Wine it skips, in CI it fails.
func startBench(t *testing.T) *Bench {
	t.Helper()
	if missing := Missing(); missing != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if testing.Short() {
		t.Skip("this takes a minute")
	}
	made.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "intermission-wine-"); made.err == nil {
			made.b, made.err = Start(context.Background(), made.dir)
		}
	})
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.b
}

// goForWindows runs the go tool so that it builds for this Windows, which has been started.
func goForWindows(t *testing.T, args ...string) {
	t.Helper()
	flag, err := withPipes(made.dir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", slices.Insert(slices.Clone(args), 1, flag)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}

// eventually polls until check finds nothing wrong any more.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.Now().Add(60 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}
