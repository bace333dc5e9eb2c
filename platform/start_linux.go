package platform

import (
	"math"

	"golang.org/x/sys/unix"
)

// closeOnExec marks the descriptors that we inherited ourselves (a shell's, a
// service manager's): Go marks only its own. Kernels before 5.11 can't; then a
// descriptor too many is inherited, and nothing else is lost.
func closeOnExec() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
