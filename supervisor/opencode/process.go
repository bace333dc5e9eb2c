package opencode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"intermission/platform"
	"intermission/restart"
)

// maxOutput bounds what is read of a program that is asked for its version.
const maxOutput = 64 << 10

// outputGrace is how long the output of an ended program is waited for: one that
// it started may hold the pipe open.
const outputGrace = time.Second

// alive tells whether a live process has this pid. It may be any program's.
func alive(pid int) bool {
	_, err := platform.Identify(pid)
	return err == nil
}

// run gives what a short-lived program prints. When ctx ends first, the program
// is killed with all that it started.
func run(ctx context.Context, argv, env []string, dir string) (string, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer reader.Close()
	if _, err := os.Stat(dir); err != nil {
		dir = "" // a home that isn't there must not keep us from asking
	}
	child, err := platform.Start(platform.Spec{Argv: argv, Env: env, Dir: dir, Output: writer})
	_ = writer.Close()
	if err != nil {
		return "", err
	}
	printed := make(chan string, 1)
	go func() {
		var text bytes.Buffer
		_, _ = io.CopyN(&text, reader, maxOutput) // as much as there is
		_, _ = io.Copy(io.Discard, reader)        // so that the program isn't held up
		printed <- text.String()
	}()
	ended := make(chan platform.Exit, 1)
	go func() { ended <- child.Wait() }()
	var exit platform.Exit
	select {
	case exit = <-ended:
	case <-ctx.Done():
		killTree(child.Identity())
		<-ended
		return "", context.Cause(ctx)
	}
	var text string
	select {
	case text = <-printed:
	case <-time.After(outputGrace):
		_ = reader.Close()
		text = <-printed
	}
	if exit != (platform.Exit{}) {
		return "", fmt.Errorf("it ended with %s: %s", describeExit(exit), restart.PlainText(text, maxSaid))
	}
	return text, nil
}

func killTree(root platform.Identity) {
	ctx := context.Background() // bounded by KillTree itself
	ids, err := platform.Tree(ctx, root, "")
	if err != nil || len(ids) == 0 {
		ids = []platform.Identity{root}
	}
	platform.KillTree(ctx, ids, 0)
}

func describeExit(e platform.Exit) string {
	if e.Signal != "" {
		return e.Signal
	}
	return fmt.Sprintf("status %d", e.Code)
}
