package restart

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// files is what stands on the disk of one ledger, by suffix of its path.
type files map[string][]byte

var suffixes = []string{"", "-wal", "-shm", lastSuffix}

// filesOf reads them as a crash would leave them.
func filesOf(t testing.TB, path string) files {
	t.Helper()
	f := files{}
	for _, suffix := range suffixes {
		if content, err := os.ReadFile(path + suffix); err == nil {
			f[suffix] = content
		} else if !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	return f
}

func (f files) put(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ledger.db")
	for suffix, content := range f {
		write(t, path+suffix, content)
	}
	return path
}

// with is f with other content under one suffix; nil takes it away.
func (f files) with(suffix string, content []byte) files {
	other := files{}
	for s, c := range f {
		other[s] = c
	}
	delete(other, suffix)
	if content != nil {
		other[suffix] = content
	}
	return other
}

// crashed makes a ledger with suspensions, some of them decided, as a crash leaves
// it; its newest changes stand in its -wal file only. older is what it was before those.
func crashed(t *testing.T) (left, older files, want string) {
	t.Helper()
	b := &bundle{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: 5000, db: newDatabase()}
	b.open()
	b.begin("inc1", begun)
	for i := range 6 {
		b.db.claims[fmt.Sprint("ses_", i)] = claim(fmt.Sprint("ses_", i), int64(2000+i))
	}
	b.park()
	b.must(b.Close())
	older = filesOf(t, b.path)
	b.open()
	defer b.Close()
	_, err := b.Dismiss(t.Context(), "ses_0", 0)
	b.must(err)
	b.db.claims["ses_6"] = claim("ses_6", 2006)
	b.park()
	left = filesOf(t, b.path)
	if len(left["-wal"]) < 5*4096 || len(left[""]) < 5*4096 || left[lastSuffix] == nil {
		t.Fatalf("it is no case: %d and %d bytes, %q", len(left[""]), len(left["-wal"]), left[lastSuffix])
	}
	return left, older, contentOf(t, b.Ledger)
}

// contentOf tells what waits, and all of the journal.
func contentOf(t testing.TB, l *Ledger) string {
	t.Helper()
	var said strings.Builder
	list, err := l.Pending(t.Context())
	if err != nil {
		return err.Error()
	}
	for _, s := range list {
		fmt.Fprintln(&said, s.ID, s.State, s.SuspendedAt)
	}
	rows, err := l.db.Query("SELECT session, what FROM journal ORDER BY seq")
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	for rows.Next() {
		var id, what string
		if err := rows.Scan(&id, &what); err != nil {
			return err.Error()
		}
		fmt.Fprintln(&said, id, what)
	}
	if err := rows.Err(); err != nil {
		return err.Error()
	}
	return said.String()
}

// wholeOrClosed opens the ledger: it is whole, or it isn't opened, and the path and an act are said.
func wholeOrClosed(t *testing.T, f files, want string) (opened bool) {
	t.Helper()
	path := f.put(t)
	l, err := Open(path, time.Now)
	if err != nil {
		for _, word := range []string{path, "; "} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("it isn't said %q: %v", word, err)
			}
		}
		return false
	}
	defer l.Close()
	if got := contentOf(t, l); got != want {
		t.Errorf("it was opened as\n%swhat was committed is\n%s", got, want)
	}
	return true
}

// lengths are all borders of pages, a byte around each, and some at random.
func lengths(random *rand.Rand, head, page, size int) []int {
	list := []int{0, 1, 15, 16, 31, 32, 99, 100, 101}
	for at := head; at <= size; at += page {
		list = append(list, at-1, at, at+1)
	}
	for range 30 {
		list = append(list, random.IntN(size))
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(n int) bool { return n < 0 || n >= size })
}

// TestALedgerThatWasCutIsWholeOrNotOpened: file and -wal file, at any length.
func TestALedgerThatWasCutIsWholeOrNotOpened(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("RESTART_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("RESTART_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	left, _, want := crashed(t)
	if !wholeOrClosed(t, left, want) {
		t.Error("what a crash leaves is not opened")
	}
	for suffix, page := range map[string]int{"": 4096, "-wal": 24 + 4096, "-shm": 32 << 10} {
		head := map[string]int{"-wal": 32}[suffix]
		whole := 0
		cuts := lengths(random, head, page, len(left[suffix]))
		for _, n := range cuts {
			t.Run(fmt.Sprintf("%s at %d", suffix, n), func(t *testing.T) {
				if wholeOrClosed(t, left.with(suffix, left[suffix][:n]), want) {
					whole++
				}
			})
		}
		t.Logf("%s of %d bytes: of %d cuts it was whole after %d", "ledger"+suffix, len(left[suffix]), len(cuts), whole)
		if suffix == "-shm" && whole != len(cuts) {
			t.Errorf("the -shm file holds nothing, but %d are not opened without it", len(cuts)-whole)
		}
	}
}

// TestWhatIsNotTheLedgerThatWasWrittenLast is not taken for it.
func TestWhatIsNotTheLedgerThatWasWrittenLast(t *testing.T) {
	t.Parallel()
	left, older, want := crashed(t)
	garbage := []byte(strings.Repeat("no ledger\n", 1000))
	for name, c := range map[string]struct {
		files files
		want  string // "" when it is whole
	}{
		"as it was left":                    {left, ""},
		"the -shm file missing":             {left.with("-shm", nil), ""},
		"the -shm file is garbage":          {left.with("-shm", garbage), ""},
		"the -wal file missing":             {left.with("-wal", nil), "older than what was written"},
		"the -wal file is empty":            {left.with("-wal", []byte{}), "older than what was written"},
		"the -wal file is garbage":          {left.with("-wal", garbage), "older than what was written"},
		"an older copy":                     {older.with(lastSuffix, left[lastSuffix]), "older than what was written"},
		"an older copy beside a -wal file":  {left.with("", older[""]), ""}, // SQLite has it whole: what is in that file isn't in the -wal file only
		"emptied":                           {left.with("-wal", nil).with("", []byte{}), "it was emptied"},
		"emptied beside a -wal file":        {left.with("", []byte{}), "it was emptied"},
		"emptied, the -wal file alone":      {left.with("", []byte{}).with(lastSuffix, nil), "it was emptied"},
		"missing beside a -wal file":        {left.with("", nil), "is missing, but"},
		"the -wal file alone":               {files{"-wal": left["-wal"]}, "is missing, but"},
		"garbage":                           {left.with("", garbage).with("-wal", nil), "it is damaged"},
		"what was written last, is garbage": {left.with(lastSuffix, garbage), ""},
		"what was written last, is missing": {left.with(lastSuffix, nil), ""},
		"what was written last, is empty":   {left.with(lastSuffix, []byte{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.files.put(t)
			for range 2 { // and it is not taken for it later
				l, err := Open(path, time.Now)
				if c.want != "" {
					if err == nil {
						t.Fatalf("it was opened, and holds %q", contentOf(t, l))
					}
					if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "put back") {
						t.Errorf("%v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := contentOf(t, l); got != want {
					t.Errorf("%s", got)
				}
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAnOlderLedgerIsUsedWhenAPersonWantsThat: the act that is named works, and so does putting back.
func TestAnOlderLedgerIsUsedWhenAPersonWantsThat(t *testing.T) {
	t.Parallel()
	left, older, want := crashed(t)
	path := older.with(lastSuffix, left[lastSuffix]).put(t)
	_, err := Open(path, time.Now)
	if err == nil || !strings.Contains(err.Error(), path+lastSuffix) {
		t.Fatalf("%v", err)
	}
	if wholeOrClosed(t, filesOf(t, path).with("", left[""]).with("-wal", left["-wal"]), want) == false {
		t.Error("the newest was put back, and isn't opened")
	}
	if err := os.Remove(path + lastSuffix); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := Open(path, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := l.Dismiss(t.Context(), "ses_1", 0); err != nil && n != 1 {
			t.Log(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	// A new one is begun when it was moved away, as is told of a damaged one.
	for _, suffix := range suffixes[:3] {
		_ = os.Remove(path + suffix)
	}
	l, err := Open(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestALedgerThatIsNoFile is neither waited for nor replaced.
func TestALedgerThatIsNoFile(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"FIFO":      mkfifo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "FIFO" && runtime.GOOS == "windows" {
				return
			}
			path := filepath.Join(t.TempDir(), "ledger.db")
			if err := make(path); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, time.Now)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "it is no file") || !strings.Contains(err.Error(), "put back") {
				t.Errorf("%v", err)
			}
		})
	}
}
