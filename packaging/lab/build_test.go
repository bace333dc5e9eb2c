//go:build linux

package lab

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Two versions of the package, of which the older one is upgraded.
const (
	oldVersion = "0.0.1"
	newVersion = "99.0.0"
)

// built is what the tests have built, once for all of them.
var built struct {
	sync.Mutex
	dir   string
	files map[string]string // by what they are
}

// once gives the file of that name, which make makes the first time.
func once(t *testing.T, name string, make func(to string) (*exec.Cmd, error)) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "intermission-built-")
		if err != nil {
			t.Fatal(err)
		}
		built.dir, built.files = dir, map[string]string{}
	}
	if file := built.files[name]; file != "" {
		return file
	}
	file := filepath.Join(built.dir, name)
	cmd, err := make(file)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	built.files[name] = file
	return file
}

// deb builds the package.
func deb(t *testing.T, version string) string {
	t.Helper()
	dir := once(t, "deb-"+version, func(to string) (*exec.Cmd, error) {
		return exec.Command("packaging/build.sh", "deb", version, to), nil
	})
	files, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	if len(files) != 1 {
		t.Fatalf("the build of the deb has made %q", files)
	}
	return files[0]
}

// installPackage installs the package as an administrator does, over an older one too.
func (m *machine) installPackage(t *testing.T, version string) {
	t.Helper()
	to := "/root/intermission-" + version + ".deb"
	m.copyIn(t, deb(t, version), to)
	m.must(t, "dpkg", "--no-triggers", "--install", to) // the index of all manual pages is none of ours
}
