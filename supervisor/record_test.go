package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server.json")
	r := record{
		Incarnation: opencode.Incarnation{ID: "id", Generation: opencode.V1, URL: "http://127.0.0.1:1", PID: 7, Password: "secret"},
		Identity:    platform.Identity{PID: 7, Start: "1", Boot: "b"}, Mark: "mark", Ready: true, Since: 5, Output: 6, Places: map[string]string{"HOME": "/h"},
	}
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("others can read the password: %v %v", info.Mode(), err)
	}
	if got, ok := loadRecord(path); !ok || !cmp.Equal(got, r) {
		t.Errorf("got %+v, %v", got, ok)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole[:len(whole)-1] { // cut off anywhere: no record
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := loadRecord(path); ok {
			t.Fatalf("cut at %d: %+v", n, got)
		}
	}
}

func TestLivingServer(t *testing.T) {
	t.Parallel()
	paths := platform.Paths{ServerRecord: filepath.Join(t.TempDir(), "server.json")}
	if pid, ok := LivingServer(paths); ok || pid != 0 {
		t.Errorf("none is recorded: %d, %v", pid, ok)
	}
	id, err := platform.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	r := record{Incarnation: opencode.Incarnation{ID: "id"}, Identity: id}
	if err := r.save(paths.ServerRecord); err != nil {
		t.Fatal(err)
	}
	if pid, ok := LivingServer(paths); !ok || pid != os.Getpid() {
		t.Errorf("it lives: %d, %v", pid, ok)
	}
	r.Identity.Start += "0" // another process has its number
	if err := r.save(paths.ServerRecord); err != nil {
		t.Fatal(err)
	}
	if pid, ok := LivingServer(paths); ok || pid != 0 {
		t.Errorf("it has ended: %d, %v", pid, ok)
	}
}

func TestWish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if w, err := loadWish(dir); w != WishRunning || err != nil {
		t.Errorf("none said: %q, %v", w, err)
	}
	for _, w := range []Wish{WishStopped, WishRunning} {
		if err := saveWish(dir, w); err != nil {
			t.Fatal(err)
		}
		if got, err := loadWish(dir); got != w || err != nil {
			t.Errorf("%q came back as %q, %v", w, got, err)
		}
	}
	if err := os.WriteFile(wishFile(dir), []byte("runn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadWish(dir); err == nil || !strings.Contains(err.Error(), wishFile(dir)) {
		t.Errorf("damaged: %v", err)
	}
}
