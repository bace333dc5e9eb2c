package platform

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/windows"
)

const consoleVariable = "INTERMISSION_TEST_CONSOLE"

// TestHideConsole starts itself again, on a console of its own and without one.
func TestHideConsole(t *testing.T) {
	if os.Getenv(consoleVariable) != "" {
		alone := consoleIsOurs()
		HideConsole()
		window, _, _ := procGetConsole.Call()
		visible, _, _ := windows.NewLazySystemDLL("user32.dll").NewProc("IsWindowVisible").Call(window)
		fmt.Printf("alone %t, visible %t\n", alone, visible != 0)
		os.Exit(0)
	}
	for _, tt := range []struct {
		name  string
		flags uint32
		want  string
	}{
		{"a console of its own", windows.CREATE_NEW_CONSOLE, "alone true, visible false\n"},
		{"no console", windows.DETACHED_PROCESS, "alone false, visible false\n"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHideConsole$")
		cmd.Env = append(os.Environ(), consoleVariable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: tt.flags}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != tt.want {
			t.Errorf("%s: %q, %v", tt.name, out, err)
		}
	}
}
