//go:build linux

package tray

import (
	"bytes"
	"context"
	"errors"
	"image"
	_ "image/png"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestRealDesktop clicks through a real panel's menu, with a real supervisor behind
// it. The script checks what happens; the README's pictures are by-products of it.
func TestRealDesktop(t *testing.T) {
	const (
		limit      = 2 * time.Minute // some 15 s when nothing else runs
		noTools    = 2               // exit status
		minW, maxW = 400, 920
		minH, maxH = 120, 400
	)
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	script := exec.CommandContext(ctx, filepath.Join("..", "assets", "screenshots", "make.sh"), out)
	script.Env = append(os.Environ(), "INTERMISSION_BIN="+intermission(t))
	script.Cancel = func() error { return script.Process.Signal(syscall.SIGTERM) } // it ends what it started
	script.WaitDelay = patience
	said, err := script.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == noTools && os.Getenv("CI") == "":
		t.Skipf("%s", bytes.TrimSpace(said))
	case err != nil:
		if screen, err := os.ReadFile(filepath.Join(out, "failure.png")); err == nil {
			kept := filepath.Join(os.TempDir(), "intermission-screen.png")
			t.Logf("the screen is kept in %s: %v", kept, os.WriteFile(kept, screen, 0o600))
		}
		t.Fatalf("%v: %s", err, said)
	}

	for _, name := range []string{"notification", "menu", "pending", "working", "dark"} {
		f, err := os.Open(filepath.Join(out, name+".png"))
		if err != nil {
			t.Error(err)
			continue
		}
		picture, _, err := image.Decode(f)
		_ = f.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if size := picture.Bounds().Size(); size.X < minW || size.X > maxW || size.Y < minH || size.Y > maxH {
			t.Errorf("%s is %v, want %d to %d by %d to %d", name, size, minW, maxW, minH, maxH)
		}
	}
}
