package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"intermission/restart"

	"github.com/fsnotify/fsnotify"
)

// output is the server's standard output and error, in a file that the server
// writes to itself: a pipe would break, and end it, when the supervisor dies.
// Rotation therefore copies and truncates; the file is open for appending on
// both sides.
type output struct {
	path string
	max  int64 // bytes; a file that has grown past it is rotated
	keep int   // older files: path.1 (newest) to path.keep
	life context.Context

	mu      sync.Mutex
	file    *os.File      // nil as long as it could not be opened
	changed chan struct{} // closed and replaced at each write to the file
}

// outputAt is the log for the server, not open yet, whose size is watched until ctx ends.
func outputAt(ctx context.Context, path string, max int64, keep int) *output {
	return &output{path: path, max: max, keep: keep, life: ctx, changed: make(chan struct{})}
}

// open opens the log, if it isn't. Without it no server can be started, but one that
// runs can be kept, which has it open.
func (o *output) open() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		return nil
	}
	f, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no file of ours; move it away", o.path)
		}
		if err != nil {
			f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("cannot open the server's log: %w", restart.Explain(o.path, err))
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(o.path)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("cannot watch the server's log: %w", err)
	}
	o.file = f
	go o.watch(o.life, w)
	return nil
}

// handle is the open log; nil when there is none.
func (o *output) handle() *os.File {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.file
}

func (o *output) close() {
	if f := o.handle(); f != nil {
		f.Close()
	}
}

// watch wakes followers and rotates, at each write.
func (o *output) watch(ctx context.Context, w *fsnotify.Watcher) {
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events:
			if !ok {
				return
			}
		case <-w.Errors: // an overflow: look at the file as after any event
		}
		if o.size() > o.max {
			o.rotate()
		}
		o.mu.Lock()
		close(o.changed)
		o.changed = make(chan struct{})
		o.mu.Unlock()
	}
}

func (o *output) size() int64 {
	f := o.handle()
	if f == nil {
		return 0
	}
	st, err := f.Stat()
	if err != nil {
		return 0
	}
	return st.Size()
}

// rotate keeps what there is as path.1. What the server writes between the copy
// and the cut is lost: the price of a log that outlives the supervisor.
func (o *output) rotate() {
	for i := o.keep; i > 1; i-- {
		_ = os.Rename(o.older(i-1), o.older(i))
	}
	if o.keep > 0 {
		if dst, err := os.OpenFile(o.older(1), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); err == nil {
			_, _ = io.Copy(dst, io.NewSectionReader(o.handle(), 0, o.size()))
			dst.Close()
		}
	}
	_ = o.handle().Truncate(0)
}

func (o *output) older(i int) string { return o.path + "." + strconv.Itoa(i) }

// wait gives a channel that is closed at the next write.
func (o *output) wait() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed
}

// follow calls line with each line from offset on, without its end, until ctx
// ends or line fails. A cut file is read from its beginning. Lines are cut at 64 KiB.
func (o *output) follow(ctx context.Context, offset int64, line func(string) error) error {
	f, err := os.Open(o.path)
	if err != nil {
		return fmt.Errorf("cannot read the server's log: %w", err)
	}
	defer f.Close()
	var part []byte
	buf := make([]byte, 32<<10)
	for {
		changed := o.wait()
		if st, err := f.Stat(); err == nil && st.Size() < offset {
			offset, part = 0, nil
		}
		n, err := f.ReadAt(buf, offset)
		offset += int64(n)
		part = append(part, buf[:n]...)
		for {
			i := bytes.IndexByte(part, '\n')
			if i < 0 {
				break
			}
			if err := line(string(bytes.TrimRight(part[:i], "\r"))); err != nil {
				return err
			}
			part = part[i+1:]
		}
		if len(part) > 64<<10 {
			part = part[:0]
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("cannot read the server's log: %w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// maxOutputLine bounds a line of the output, in bytes; the rest of a longer one is left out.
const maxOutputLine = 64 << 10

// last gives the last n lines at or after offset, and where the file ended; all of them for n < 0.
func (o *output) last(n int, offset int64) ([]string, int64) {
	end := o.size()
	if offset > end {
		offset = 0 // rotated since
	}
	if most := int64(1 << 20); n >= 0 && end-offset > most {
		offset = end - most
	}
	var lines []string
	in := bufio.NewReaderSize(io.NewSectionReader(o.handle(), offset, end-offset), maxOutputLine)
	for within := false; ; { // a line whose beginning is there
		part, err := in.ReadSlice('\n')
		if !within && len(part) > 0 {
			lines = append(lines, string(bytes.TrimRight(part, "\r\n")))
		}
		if n >= 0 && len(lines) > 2*n+64 {
			lines = append([]string(nil), lines[len(lines)-n:]...)
		}
		within = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !within {
			break
		}
	}
	if n >= 0 && len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return lines, end
}
