package restart

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestALedgerThatWasTakenAwayWhileInUseFailsClosed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // nobody can take it away there
	}
	for name, c := range map[string]struct {
		take func(b *bundle)
		want string
	}{
		"removed": {func(b *bundle) {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				b.must(os.Remove(b.path + suffix))
			}
		}, "removed or replaced while in use; put it back, or restart"},
		"moved away": {func(b *bundle) { b.must(os.Rename(b.path, b.path+".old")) }, "removed or replaced"},
		"replaced": {func(b *bundle) {
			b.must(os.Rename(b.path, b.path+".old"))
			content, err := os.ReadFile(b.path + ".old")
			b.must(err)
			b.must(os.WriteFile(b.path, content, 0o600))
		}, "removed or replaced"},
		"emptied":    {func(b *bundle) { b.must(os.Truncate(b.path, 0)) }, "was cut short"},
		"cut short":  {func(b *bundle) { b.must(os.Truncate(b.path, 4096)) }, "was cut short"},
		"cut in two": {func(b *bundle) { b.must(os.Truncate(b.path, 3*4096+100)) }, "was cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: 5000, db: newDatabase(claim("ses_1", 2000))}
			b.open()
			defer b.Close()
			b.begin("inc1", begun)
			b.must(b.Suspend(t.Context(), []string{"ses_0"}, 3000))
			_, err := b.Ledger.db.Exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA cache_size = 0")
			b.must(err)
			b.apply(EventStarted, "ses_2", 3000)
			c.take(b)
			_, parked := b.Park(t.Context(), b.db, ParkOptions{Cause: CauseCrash, Database: serverDB})
			_, consumed := b.Consume(t.Context(), "ses_0", 3000)
			for _, err := range []error{parked, consumed, b.Suspend(t.Context(), []string{"ses_1"}, 3000)} {
				if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), b.path) {
					t.Errorf("%v", err)
				}
			}
			if b.db.cleared != 0 || len(b.db.claims) != 1 {
				t.Error("the server's database was cleared")
			}
		})
	}
}

func TestADamagedLedgerIsSaidWithItsPathAndAnAct(t *testing.T) {
	t.Parallel()
	b := &bundle{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: 5000, db: newDatabase(claim("ses_1", 2000))}
	b.open()
	b.begin("inc1", begun)
	b.must(b.Close())
	content, err := os.ReadFile(b.path)
	b.must(err)
	b.open()
	defer b.Close()
	for i := 4096; i < len(content); i++ { // as a disk may do under it
		content[i] = 0xff
	}
	b.must(os.WriteFile(b.path, content, 0o600))
	_, err = b.Ledger.db.Exec("PRAGMA shrink_memory") // what it has in memory is sound
	b.must(err)
	_, shown := b.Pending(t.Context())
	_, parked := b.Park(t.Context(), b.db, ParkOptions{Database: serverDB})
	for _, err := range []error{shown, parked} {
		if err == nil || !strings.Contains(err.Error(), b.path+": it is damaged") || !strings.Contains(err.Error(), "put back a copy") {
			t.Errorf("%v", err)
		}
	}
	if b.db.cleared != 0 {
		t.Error("the server's database was cleared")
	}
}

func TestALedgerThatIsPutBackGoesOn(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return
	}
	b := setup(t, claim("ses_1", 2000))
	b.must(os.Rename(b.path, b.path+".old"))
	if _, err := b.Park(t.Context(), b.db, ParkOptions{}); err == nil {
		t.Error("no error")
	}
	b.must(os.Rename(b.path+".old", b.path))
	b.park()
	b.wants("ses_1 pending")
	other, err := Open(b.path, time.Now)
	b.must(err)
	defer other.Close()
	if list, err := other.Pending(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("the next start: %v, %v", list, err)
	}
}
