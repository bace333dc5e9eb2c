package platform

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestSystemdVerifies(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]SystemdOptions{"--user": {}, "--system": {User: "daemon", Home: "/"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := strangeService
			s.Argv = append([]string{program}, s.Argv[1:]...)
			unit, err := SystemdUnit(s, o)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "intermission.service")
			if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
				t.Fatal(err)
			}
			// Without the manual page, which a package brings.
			cmd := exec.CommandContext(t.Context(), analyze, "verify", name, "--man=no", file)
			cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "HOME="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || len(out) != 0 {
				t.Errorf("%v: %s\n%s", err, out, unit)
			}
		})
	}
}
