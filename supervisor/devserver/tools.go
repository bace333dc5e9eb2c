package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"intermission/platform"
)

// How long a tool has to end after it was asked to. At a shutdown one that ignores
// it is left behind, as the real server does; for a user's interrupt it is killed.
const (
	toolGrace = 300 * time.Millisecond
	killAfter = 3 * time.Second
)

// outputLimit bounds what is kept of a tool's output, in bytes.
const outputLimit = 64 << 10

// use calls the tool that st names.
func (a *assistant) use(ctx context.Context, st step) error {
	s, session := a.s, a.session
	switch st.kind {
	case stepShell:
		return a.tool(ctx, "shell", data{"command": st.arg}, func(ctx context.Context, _ *call) (string, data, error) {
			output, exit, err := runShell(ctx, session.Location.Directory, st.arg)
			return output, data{"exit": exit}, err
		})
	case stepBgShell:
		return a.tool(ctx, "shell", data{"command": st.arg, "background": true}, func(context.Context, *call) (string, data, error) {
			shell, err := s.startShellJob(session, st.arg)
			return "started in the background", data{"shellID": shell}, err
		})
	case stepSubagent:
		return a.tool(ctx, kindSubagent, data{"prompt": st.arg}, func(ctx context.Context, _ *call) (string, data, error) {
			child, e, err := s.startChild(session, st.arg)
			if err != nil {
				return "", nil, err
			}
			return s.awaitChild(ctx, child, e)
		})
	case stepBackground:
		return a.tool(ctx, kindSubagent, data{"prompt": st.arg, "background": true}, func(context.Context, *call) (string, data, error) {
			child, err := s.startChildJob(session, st.arg)
			return "started in the background", data{"sessionID": child}, err
		})
	case stepPermission:
		return a.tool(ctx, "shell", data{"command": "make clean"}, func(ctx context.Context, c *call) (string, data, error) {
			return "permitted", nil, s.askPermission(ctx, c)
		})
	default:
		return a.tool(ctx, "question", data{"questions": theQuestions()}, func(ctx context.Context, c *call) (string, data, error) {
			return "answered", nil, s.askQuestion(ctx, c)
		})
	}
}

// startChild makes a session below parent and lets it do prompt.
func (s *server) startChild(parent sessionInfo, prompt string) (sessionInfo, *execution, error) {
	child, err := s.createSession("", parent.ID, parent.Location.Directory)
	if err != nil {
		return child, nil, err
	}
	if _, err := s.admit(child, input{Type: "user", Text: prompt}); err != nil {
		return child, nil, err
	}
	e := s.wake(child.ID, "prompt")
	if e == nil {
		return child, nil, errShutdown
	}
	return child, e, nil
}

// awaitChild waits for a child's turn. When the parent is interrupted, the child is too.
func (s *server) awaitChild(ctx context.Context, child sessionInfo, e *execution) (string, data, error) {
	select {
	case <-e.done:
	case <-ctx.Done():
		e.cancel(context.Cause(ctx))
		<-e.done
	}
	return "the child session has ended", data{"sessionID": child.ID}, nil
}

// runShell runs command in directory, really, as a process in a session of its
// own. When ctx ends it is asked to terminate.
func runShell(ctx context.Context, directory, command string) (output string, exit int, err error) {
	child, out, err := startShell(directory, command)
	if err != nil {
		return "", -1, err
	}
	ended := make(chan platform.Exit, 1)
	go func() { ended <- child.Wait() }() // ends with the tool, which may outlive the server
	select {
	case e := <-ended:
		exit = e.Code
	case <-ctx.Done():
		exit = stopShell(child.Identity(), ended, errors.Is(context.Cause(ctx), errUser))
	}
	return readOutput(out), exit, nil
}

func startShell(directory, command string) (*platform.Child, *os.File, error) {
	argv, err := shellCommand(command)
	if err != nil {
		return nil, nil, err
	}
	out, err := os.CreateTemp("", "opencode-tool-*")
	if err != nil {
		return nil, nil, err
	}
	child, err := platform.Start(platform.Spec{Argv: argv, Env: os.Environ(), Dir: directory, Output: out})
	if err != nil {
		readOutput(out)
		return nil, nil, err
	}
	return child, out, nil
}

func shellCommand(command string) ([]string, error) {
	if path, err := exec.LookPath("sh"); err == nil {
		return []string{path, "-c", command}, nil
	}
	path, err := exec.LookPath("cmd") // Windows
	if err != nil {
		return nil, fmt.Errorf("cannot find a shell: %w", err)
	}
	return []string{path, "/c", command}, nil
}

// stopShell asks a tool and its children to end. With force those that don't are killed.
func stopShell(id platform.Identity, ended <-chan platform.Exit, force bool) (exit int) {
	tree, err := platform.Tree(context.Background(), id, "")
	if err != nil {
		tree = []platform.Identity{id}
	}
	if force {
		platform.KillTree(context.Background(), tree, killAfter)
	} else {
		for _, p := range tree {
			_ = p.Signal(platform.Terminate)
		}
	}
	timer := time.NewTimer(toolGrace)
	defer timer.Stop()
	select {
	case e := <-ended:
		return e.Code
	case <-timer.C:
		return -1
	}
}

// readOutput gives the beginning of a tool's output and removes its file.
func readOutput(f *os.File) string {
	defer os.Remove(f.Name())
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, outputLimit))
	if err != nil {
		return ""
	}
	return string(text)
}
