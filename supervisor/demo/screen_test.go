package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, typed, err string
	}{
		{"any key", "x", ""},
		{"Enter", "\r", ""},
		{"only the first counts", "x\x03", ""},
		{"Ctrl-C", "\x03", "interrupted"},
		{"end of input", "", "add --yes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := key(t.Context(), strings.NewReader(tt.typed))
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestKeyEndsWithContext(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe() // nobody writes
	defer out.Close()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := key(ctx, in); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	ask := func(yes bool, typed string) (string, error) {
		var out bytes.Buffer
		s := &story{Options: Options{Yes: yes, In: strings.NewReader(typed)}, screen: screen{out: &out}, limit: time.NewTimer(time.Hour)}
		defer s.limit.Stop()
		err := s.ask(t.Context(), "Press a key: ")
		return out.String(), err
	}
	if out, err := ask(false, "x"); err != nil || !strings.Contains(out, "Press a key: \n") {
		t.Errorf("with a key: %q, %v", out, err)
	}
	if _, err := ask(false, ""); err == nil {
		t.Error("no key was taken for one")
	}
	if out, err := ask(true, ""); err != nil || strings.Contains(out, "Press") {
		t.Errorf("with --yes: %q, %v", out, err)
	}
}

func TestColour(t *testing.T) {
	t.Parallel()
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		s := screen{out: &out, colour: colour}
		s.heading("Heading")
		s.say(3, "%d things", 4)
		s.more("one\ntwo\n")
		s.table(promised.verdicts())
		if strings.Contains(out.String(), "\x1b[") != colour {
			t.Errorf("colour %v:\n%q", colour, &out)
		}
		if !colour && !strings.Contains(out.String(), "   3 │ 4 things\n     │ one\n     │ two\n") {
			t.Errorf("got:\n%s", &out)
		}
	}
}
