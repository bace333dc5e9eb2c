package platform

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// runningProgram is the file that the process executes, "" where that can't be told.
func runningProgram(pid int) string {
	path, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
	return path
}

// recordedShell is the last field of the user's line in /etc/passwd (passwd(5)).
// A user of a directory service is not in it; SHELL is set for those.
func recordedShell(uid int) string {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return ""
	}
	return passwdShell(string(b), uid)
}

func passwdShell(passwd string, uid int) string {
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 7 && f[2] == strconv.Itoa(uid) && filepath.IsAbs(f[6]) {
			return f[6]
		}
	}
	return ""
}
