package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newOutput(t *testing.T, limit int64, keep int) *output {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	o := outputAt(ctx, filepath.Join(t.TempDir(), "server.log"), limit, keep)
	if err := o.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		o.file.Close()
	})
	return o
}

func (o *output) print(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(o.file, format, args...); err != nil {
		t.Fatal(err)
	}
}

func TestOutputLast(t *testing.T) {
	t.Parallel()
	o := newOutput(t, 1<<20, 2)
	for i := range 500 {
		o.print(t, "line %d\n", i)
	}
	_, offset := o.last(0, 0)
	o.print(t, "one\r\ntwo\nunfinished")
	for _, c := range []struct {
		n      int
		offset int64
		want   []string
	}{
		{2, 0, []string{"two", "unfinished"}},
		{100, offset, []string{"one", "two", "unfinished"}},
		{0, 0, nil},
		{1, 1 << 40, []string{"unfinished"}}, // rotated since
	} {
		if got, _ := o.last(c.n, c.offset); !cmp.Equal(got, c.want) && len(got)+len(c.want) > 0 {
			t.Errorf("last(%d, %d) = %q", c.n, c.offset, got)
		}
	}
	if got, _ := o.last(-1, 0); len(got) != 503 {
		t.Errorf("all: %d lines", len(got))
	}
}

// TestOutputLastBesideALongLine: what comes after a line without an end is not lost.
func TestOutputLastBesideALongLine(t *testing.T) {
	t.Parallel()
	for _, length := range []int{maxOutputLine - 1, maxOutputLine, 300 << 10, 2 << 20} {
		o := newOutput(t, 10<<20, 2)
		long := strings.Repeat("x", length)
		o.print(t, "before\n%s\r\nafter\nlast\n", long)
		want := []string{long[:min(length, maxOutputLine)], "after", "last"}
		got, _ := o.last(3, 0)
		if length > 1<<20 { // no more is looked at
			want[0] = want[0][:min(len(want[0]), len(got[0]))]
		}
		if !cmp.Equal(got, want) {
			t.Errorf("a line of %d bytes: %d lines, the last %.20q", length, len(got), got[len(got)-1])
		}
	}
}

func TestOutputFollows(t *testing.T) {
	t.Parallel()
	o := newOutput(t, 1<<20, 2)
	o.print(t, "before\n")
	_, offset := o.last(0, 0)
	lines := make(chan string, 10)
	enough := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		ended <- o.follow(t.Context(), offset, func(l string) error {
			lines <- l
			if l == "last" {
				return enough
			}
			return nil
		})
	}()
	o.print(t, "hal")
	o.print(t, "f\nnext\n")
	for _, want := range []string{"half", "next"} {
		select {
		case got := <-lines:
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%q never came", want)
		}
	}
	o.print(t, "last\n")
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("ended with %v", err)
	}
}

func TestOutputIsCapped(t *testing.T) {
	t.Parallel()
	const keep = 2
	o := newOutput(t, 10_000, keep)
	kept := func(i int) bool {
		info, err := os.Stat(o.older(i))
		return err == nil && info.Size() > 0 && info.Mode().Perm() == 0o600
	}
	deadline := time.Now().Add(20 * time.Second)
	for n := 0; !kept(1) || !kept(2); n++ {
		o.print(t, "%s\n", strings.Repeat("x", 99))
		if time.Now().After(deadline) {
			t.Fatalf("not rotated twice after %d kB", n/10)
		}
	}
	if _, err := os.Stat(o.older(keep + 1)); err == nil {
		t.Error("more files than are to be kept")
	}
}
