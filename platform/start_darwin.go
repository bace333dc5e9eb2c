package platform

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// closeOnExec marks the descriptors that we inherited ourselves (a shell's,
// launchd's): Go marks only its own.
func closeOnExec() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // then a descriptor too many is inherited, and nothing else is lost
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}
