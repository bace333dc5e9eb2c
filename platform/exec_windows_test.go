package platform

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestBecome(t *testing.T) {
	t.Parallel()
	batch := filepath.Join(t.TempDir(), "exits.cmd")
	if err := os.WriteFile(batch, []byte("@exit /b %1\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := Become([]string{batch, "7"}, t.TempDir(), os.Environ()); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("%v", err)
	}
	if err := Become([]string{batch, "0"}, t.TempDir(), os.Environ()); err != nil {
		t.Error(err)
	}
	if err := Become([]string{batch, "0&exit /b 9"}, t.TempDir(), os.Environ()); err == nil || !strings.Contains(err.Error(), "safely") {
		t.Errorf("an argument that cmd.exe would read: %v", err)
	}
}
