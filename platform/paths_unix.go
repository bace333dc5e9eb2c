//go:build unix

package platform

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

const homeVariable = "HOME"

// sunPath is the room for a socket's path, its NUL included: 108 bytes on Linux, 104 on macOS.
const sunPath = len(unix.RawSockaddrUnix{}.Path)

// xdgDirectory is the directory that the variable names, or fallback below the
// home directory. The specification says that a relative value is to be ignored.
func xdgDirectory(getenv func(string) string, name, fallback string) string {
	base := getenv(name)
	if !filepath.IsAbs(base) {
		home := getenv("HOME")
		if fallback == "" || !filepath.IsAbs(home) {
			return ""
		}
		base = filepath.Join(home, fallback)
	}
	return filepath.Join(base, app)
}

func socketName(d directories) (string, error) {
	path := filepath.Join(d.runtime, app+".sock")
	return path, checkSocketLength(path)
}

func checkSocketLength(path string) error {
	if len(path) < sunPath {
		return nil
	}
	return fmt.Errorf("the socket path %s has %d bytes, the system allows %d; set %s to a shorter directory",
		path, len(path), sunPath-1, envRuntime)
}
