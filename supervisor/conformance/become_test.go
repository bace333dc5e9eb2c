//go:build linux

package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"intermission/platform"
	"intermission/supervisor/control"
)

// attacher is a supervisor that only says how sessions are opened: by a shell script.
type attacher struct{ control.Backend }

func (attacher) Attach(_ context.Context, id string) (control.Attachment, error) {
	script := map[string]string{
		"ses_told":    `echo "$0 in $PWD as $OPENCODE_SERVER_PASSWORD"; read line; echo "read $line"; exit 7`,
		"ses_stopped": `trap 'echo stopped by hand; exit 5' INT; kill -INT $$; exit 1`,
	}[id]
	if script == "" {
		return control.Attachment{}, &control.Error{Code: control.CodeRefused, Message: "the server is not running; start it with: intermission start"}
	}
	return control.Attachment{Argv: []string{"/bin/sh", "-c", script, id}, Dir: "/", Env: map[string]string{"OPENCODE_SERVER_PASSWORD": "hush"}}, nil
}

// TestOpenTakesOurPlace calls open in a terminal: what it runs has our directory,
// environment, terminal and exit status, and Ctrl-C is its own.
func TestOpenTakesOurPlace(t *testing.T) {
	t.Parallel()
	s := newSandbox(t)
	s.env = append(s.env, "OPENCODE_SERVER_PASSWORD=another", "INTERMISSION_RUNTIME_DIR="+s.path("run"))
	if err := platform.EnsurePrivateDir(s.path("run")); err != nil {
		t.Fatal(err)
	}
	l, err := platform.Listen(s.path("run", "intermission.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- control.NewServer(attacher{}, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	defer func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		args   []string
		status int
		want   []string
	}{
		{[]string{"open", "ses_told"}, 7, []string{"ses_told in / as hush\r\n", "read hello\r\n"}},
		{[]string{"open", "ses_told", "--json"}, 7, []string{"ses_told in / as hush\r\n"}},
		{[]string{"open", "ses_stopped"}, 5, []string{"stopped by hand\r\n"}},
		{[]string{"open", "ses_x"}, 5, []string{"intermission: the server is not running; start it with: intermission start\r\n"}},
		{[]string{"open", "ses_x", "--json"}, 5, []string{`{"error":{"code":"refused",`}},
	} {
		tty := s.inTerminal(t, program, c.args...)
		tty.types(t, "hello\n")
		tty.wait(t)
		if status := tty.cmd.ProcessState.ExitCode(); status != c.status {
			t.Errorf("%q: exit status %d, want %d", c.args, status, c.status)
		}
		for _, want := range c.want {
			eventually(t, fmt.Sprintf("%q says %q", c.args, want), func() error {
				if !tty.shows(want) {
					return fmt.Errorf("it says %q", tty.tail())
				}
				return nil
			})
		}
	}
}
