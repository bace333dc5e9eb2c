package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"intermission/platform"
)

// What a server that somebody else started was doing before we saw it is its own too: it
// may be gone before it can be asked.
func TestNothingOfAnAdoptedServerIsOlderThanItsRecord(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	foreign, err := platform.Start(platform.Spec{Argv: b.o.Config.Server.Command, Env: append(b.o.Environ, asServer+"=1"), Dir: b.dir})
	if err != nil {
		t.Fatal(err)
	}
	go foreign.Wait()
	var info os.FileInfo
	b.until("its registration", func() bool {
		info, err = os.Stat(filepath.Join(b.dir, ".local/state/opencode/service.json"))
		return err == nil
	}, func() any { return err })
	b.start()
	if st := b.phase(Running); !st.Server.Adopted {
		t.Fatalf("%+v", st.Server)
	}
	r, ok := loadRecord(b.o.Paths.ServerRecord)
	if !ok || r.Since > info.ModTime().UnixMilli() {
		t.Errorf("%+v, and it came at %d", r, info.ModTime().UnixMilli())
	}
}
