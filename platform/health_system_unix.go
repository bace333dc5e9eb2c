//go:build unix

package platform

import (
	"strings"

	"golang.org/x/sys/unix"
)

func systemName() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	name := unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	release, _, _ := ReadTail("/etc/os-release", smallMax, true) // os-release(5); macOS has none
	for line := range strings.Lines(string(release)) {
		if pretty, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(pretty, `"'`) + ", " + name
		}
	}
	return name
}
