package faultpoint_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"intermission/restart/faultpoint"
)

// TestReleaseHoldsNothing builds the program as it is released, and as it is tried: only
// the second knows the variable, or one name of a point.
func TestReleaseHoldsNothing(t *testing.T) {
	t.Parallel()
	words := []string{"INTERMISSION_FAULTPOINTS", "intermission/restart/faultpoint."}
	for _, name := range faultpoint.All {
		words = append(words, string(name))
	}
	for _, build := range []struct {
		name string
		tags string
		has  bool
	}{{"as released", "", false}, {"with the tag", "faultpoints", true}} {
		t.Run(build.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "intermission")
			cmd := exec.Command("go", "build", "-trimpath", "-tags", build.tags, "-o", program, ".") // with its symbols
			cmd.Dir = filepath.Join("..", "..")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("cannot build: %v\n%s", err, out)
			}
			content, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range words {
				if bytes.Contains(content, []byte(word)) != build.has {
					t.Errorf("the program holds %q: %v", word, !build.has)
				}
			}
		})
	}
}

// TestAllOnce holds that no name stands twice in the table.
func TestAllOnce(t *testing.T) {
	t.Parallel()
	seen := map[faultpoint.Name]bool{}
	for _, name := range faultpoint.All {
		if seen[name] {
			t.Errorf("%s stands twice", name)
		}
		seen[name] = true
	}
}
