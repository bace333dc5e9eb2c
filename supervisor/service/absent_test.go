package service

import (
	"errors"
	"strings"
	"testing"

	"intermission/platform"
)

func TestActWhereNoneRuns(t *testing.T) {
	for _, c := range []struct {
		root      bool
		installed bool
		noManager bool
		running   bool
		comes     bool
		err       error
		want      string
	}{
		{want: ": intermission service install"},
		{installed: true, want: ": intermission service start"},
		{installed: true, running: true, want: "changing over to the next; try again in a moment, or see: intermission service status"},
		{installed: true, comes: true, want: "changing over to the next; try again in a moment, or see: intermission service status"},
		{noManager: true, want: ": intermission service install --linger"},
		{installed: true, noManager: true, want: ": intermission service install --linger"},
		{err: errors.New("no manager"), want: ": intermission service start"},
		{root: true, installed: true, want: "without sudo"},
	} {
		got := startAct(c.root, func() (platform.ServiceStatus, error) {
			return platform.ServiceStatus{Installed: c.installed, Running: c.running, Comes: c.comes, Unreachable: c.noManager}, c.err
		})
		if !strings.HasSuffix(got, c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
