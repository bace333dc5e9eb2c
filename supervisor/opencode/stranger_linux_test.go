package opencode

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"intermission/restart"
)

// TestAnotherUsersServerIsSentNothing: who has taken the port of our server, as every
// user of the machine can, doesn't get the password.
func TestAnotherUsersServerIsSentNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("this takes root")
		}
		t.Skip("this takes root")
	}
	const stranger = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) { // the other user has to come in
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "exe")
	syscall.ForkLock.RLock()
	err = os.WriteFile(program, exe, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = dir, []string{"FAKE_OPENCODE=listen"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	addr, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for _, generation := range []Generation{V1, V2} {
		inc := Incarnation{ID: "inc", Generation: generation, URL: "http://" + strings.TrimSpace(addr), PID: os.Getpid(), Password: testPassword}
		var unwell *HealthError
		if err := Health(t.Context(), inc); !errors.As(err, &unwell) || unwell.Kind != Stranger || !strings.Contains(err.Error(), "uid 65534") {
			t.Errorf("%s: health: %v", generation, err)
		}
		c := Connect(inc)
		ctx, cancel := context.WithTimeout(t.Context(), healthTimeout) // one that doesn't answer is waited for
		err := c.Deliver(ctx, restart.Delivery{Session: "ses_1", Suspended: 7})
		cancel()
		wantVerdict(t, err, "refused")
		if _, err := c.Session(t.Context(), "ses_1"); !strings.Contains(err.Error(), "another user's program") {
			t.Errorf("%s: session: %v", generation, err)
		}
		c.Close()
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	heard, err := io.ReadAll(out)
	if err = errors.Join(err, cmd.Wait()); err != nil || string(heard) != "heard 0 bytes\n" {
		t.Errorf("the stranger says %q, %v", heard, err)
	}
}
