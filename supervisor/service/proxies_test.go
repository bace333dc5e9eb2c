package service

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"intermission/platform"
	"intermission/supervisor/control"
)

// serving is a supervisor whose server is this process.
type serving struct{ control.Backend }

func (serving) Status(context.Context) (control.Status, error) {
	return control.Status{Server: control.ServerStatus{State: "running", PID: os.Getpid()}}, nil
}

// TestKeptProxiesOfARunningServer: a server that runs has what is kept after a restart only.
func TestKeptProxiesOfARunningServer(t *testing.T) {
	if _, err := platform.ProcessEnvironment(os.Getpid()); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("SHELL", "/bin/sh")
	b := Background{Paths: platform.Paths{Socket: filepath.Join(dir, "s"), ConfigFile: filepath.Join(dir, "config.toml")}}
	hinted := func() bool {
		t.Helper()
		var report platform.ServiceReport
		b.keepProxies(t.Context(), &report)
		if !strings.Contains(strings.Join(report.Done, "\n"), "HTTPS_PROXY") {
			t.Errorf("%+v", report)
		}
		return strings.Contains(strings.Join(report.Next, "\n"), "intermission restart")
	}
	t.Setenv("HTTPS_PROXY", "http://proxy:1") // after this process was started: it is not in what it was started with
	if hinted() {
		t.Error("no server runs")
	}
	l, err := platform.Listen(b.Paths.Socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- control.NewServer(serving{}, slog.New(slog.DiscardHandler)).Serve(ctx, l) }()
	defer func() {
		end()
		<-ended
	}()
	if !hinted() {
		t.Error("the server that runs has it not")
	}
	if b.serverLacks(t.Context(), []string{"PATH"}) {
		t.Error("it has PATH as we have")
	}
}
