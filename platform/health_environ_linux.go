package platform

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// processEnvironment reads what the process was started with (proc_pid_environ(5)).
// The kernel lets its own user read it, and gives at most what fits there.
func processEnvironment(pid int) ([]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, fmt.Errorf("cannot read the environment of process %d: %w", pid, err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == 0 }), nil
}
