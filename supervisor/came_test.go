package supervisor

import (
	"os"
	"path/filepath"
	"testing"

	"intermission/platform"
	"intermission/supervisor/opencode"
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

// Nobody has taken the lock first where it is free: a grant that is late, on a machine that
// is loaded, must not have us park with the door open to whoever starts a server then.
func TestALockThatIsFreeIsNotLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	install := &opencode.Install{Generation: opencode.V2, Env: []string{"HOME=" + dir}}
	if err := os.MkdirAll(filepath.Dir(install.LockPath()), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &supervisor{life: t.Context(), install: install}
	late := &guard{lost: make(chan struct{})}
	close(late.lost)
	for range 200 { // what comes first, the loss or the grant, is the machine's choice
		lock, err := s.lockOrLoss(t.Context(), late)
		if err != nil || lock == nil {
			t.Fatalf("%v, %v", lock, err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}
