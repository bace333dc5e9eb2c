//go:build linux

package wine

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlatform runs those tests of package platform that are for Windows only: services,
// the logon task, power events, locks, consoles.
func TestPlatform(t *testing.T) {
	b := startBench(t)
	names := testsForWindows(t, filepath.Join("..", "..", "platform"))
	program := filepath.Join(t.TempDir(), "platform.test.exe")
	goForWindows(t, "test", "-c", "-overlay", removable(t), "-o", program, "./platform")
	cmd := b.Command(t.Context(), program, "-test.v", "-test.timeout=3m", "-test.run=^("+strings.Join(names, "|")+")$")
	out, err := Output(cmd)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range names {
		if !bytes.Contains(out, []byte("--- PASS: "+name+" ")) && name != "TestServiceProgram" {
			t.Errorf("%s has not passed\n%s", name, out)
		}
	}
}

// testsForWindows lists the tests of a package that no other system has.
func testsForWindows(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_windows_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests for Windows in %s: %v", dir, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(source, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

// removable writes an overlay with which Go's own way to remove a directory works on
// Wine 8: that answers that it hasn't got the newer call, and Go falls back to the
// older one by other answers only.
func removable(t *testing.T) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "src", "internal", "syscall", "windows", "at_windows.go")
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const among, notImplemented = "case STATUS_INVALID_INFO_CLASS,", "case NTStatus(0xC0000002), STATUS_INVALID_INFO_CLASS,"
	if !bytes.Contains(source, []byte(among)) {
		t.Fatalf("%s is another by now: it has no %q", path, among)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "at_windows.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{changed: bytes.ReplaceAll(source, []byte(among), []byte(notImplemented)), overlay: text} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
