// Package demo tells what intermission is for, on this machine, in ten seconds:
// the same reboot twice, once with the server alone and once with intermission
// between it and the sessions. What it says is counted, not claimed: the requests
// that reach the model are read from a file that the server writes, and Run fails
// when a count is not what was promised.
//
// The server is the embedded one (package devserver). Each half of the story has
// a machine of its own: a home with its configuration, state and data, in a
// temporary directory. Nothing of the user's is read or written, every process
// that was started is ended, and the directory is removed, also after Ctrl-C.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"intermission/supervisor/control"
)

// Options is what the demo is given.
type Options struct {
	Self     string // absolute path of the intermission program
	Yes      bool   // consent without a key
	In       io.Reader
	Out      io.Writer
	Terminal bool // In and Out are terminals: a person can be asked for a key
	Colour   bool
	Report   io.Writer // gets the counts as JSON; nil for none
}

const (
	workLimit = 60 * time.Second // of the whole demo, without the time a person takes
	keyLimit  = 5 * time.Minute  // until a person has pressed a key
)

var errTooLong = fmt.Errorf("the demo took longer than %v, and was given up", workLimit)

// Run tells the story. It fails when a count is not as promised, when it takes
// longer than a minute (5 more for a key), and when ctx ends.
func Run(ctx context.Context, o Options) error {
	if !o.Yes && !o.Terminal {
		return &control.Error{Code: control.CodeUsage, Message: "no terminal to ask for a key on; to run the demo without being asked, add --yes"}
	}
	root, err := os.MkdirTemp("", "im-demo-") // short: a socket's path has at most 103 bytes on macOS
	if err != nil {
		return fmt.Errorf("cannot make a directory for the demo: %w", err)
	}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	began := time.Now()
	s := &story{
		Options: o,
		root:    root,
		screen:  screen{out: o.Out, colour: o.Colour},
		limit:   time.AfterFunc(workLimit, func() { giveUp(errTooLong) }),
	}
	defer s.limit.Stop()
	c, err := s.tell(ctx)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("the demo was stopped: %w", context.Cause(ctx))
	case err != nil: // as text: an error of the demo's own supervisor is not about the user's
		err = errors.New("the demo failed: " + err.Error())
	}
	if err == nil {
		s.screen.table(c.verdicts())
		err = errors.Join(c.judge(), report(o.Report, c.verdicts()))
	}
	err = errors.Join(err, s.cleanUp(ctx))
	if err == nil {
		s.screen.text("\nAll as promised, after %.0f s. Nothing is left of the demo: its processes have ended, %s is removed.\n",
			time.Since(began).Seconds(), root)
	}
	return err
}

// report writes the counts as JSON for a script; nil is for nobody.
func report(w io.Writer, list []verdict) error {
	if w == nil {
		return nil
	}
	type count struct {
		What    string `json:"what"`
		Want    string `json:"want"`
		Counted int    `json:"counted"`
		Good    bool   `json:"good"`
	}
	var counts []count
	for _, v := range list {
		counts = append(counts, count{v.what, v.want, v.counted, v.good})
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(map[string]any{"counts": counts})
}

// cleanUp ends every process of the demo and removes its directory.
func (s *story) cleanUp(ctx context.Context) error {
	var errs []error
	for _, m := range s.machines {
		errs = append(errs, m.end(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.root))...)
}
