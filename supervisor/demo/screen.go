package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// screen is where the story is told. Errors of the output are of no interest:
// what counts is the exit status.
type screen struct {
	out    io.Writer
	colour bool
}

// The terminal's colours, by what they mean here.
const (
	strong = "1"
	good   = "32"
	bad    = "31"
	faint  = "2"
)

func (s screen) paint(style, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (s screen) text(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s screen) heading(text string) { s.text("\n%s\n", s.paint(strong, text)) }

// say tells one thing that happened, beside the requests that had reached the model by then.
func (s screen) say(requests int, format string, args ...any) {
	s.text("%s %s %s\n", s.paint(strong, fmt.Sprintf("%4d", requests)), s.paint(faint, "│"), fmt.Sprintf(format, args...))
}

// more goes on with what was said.
func (s screen) more(text string) {
	for line := range strings.Lines(text) {
		s.text("     %s %s\n", s.paint(faint, "│"), strings.TrimRight(line, "\n"))
	}
}

// table shows the counts.
func (s screen) table(verdicts []verdict) {
	s.heading("Counted")
	for _, v := range verdicts {
		word := s.paint(good, "ok")
		if !v.good {
			word = s.paint(bad, "WRONG")
		}
		s.text("  %-53s %d   promised %-4s %s\n", v.what, v.counted, v.want, word)
	}
}

var errInterrupted = errors.New("interrupted")

// key waits for one key from in; on a terminal none has to be followed by Enter.
// It fails at Ctrl-C, at the end of in and when ctx ends.
func key(ctx context.Context, in io.Reader) error {
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		before, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("cannot read a single key: %w", err)
		}
		defer func() { _ = term.Restore(int(f.Fd()), before) }()
	}
	pressed := make(chan error, 1)
	go func() { // a read of a terminal can't be ended: after ctx it stays until the program does
		var b [1]byte
		_, err := io.ReadFull(in, b[:])
		if err == nil && b[0] == 0x03 { // raw, Ctrl-C is a key
			err = errInterrupted
		}
		pressed <- err
	}()
	select {
	case err := <-pressed:
		if errors.Is(err, io.EOF) {
			return errors.New("no key was pressed: the input has ended; to run the demo without being asked, add --yes")
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
