package platform

import (
	"path/filepath"
	"time"
)

// Holder is another process that has a file open.
type Holder struct {
	PID   int
	Since time.Time // when the process started, to a hundredth of a second
}

// Holders gives the other processes of this user that have the file open. Only Linux
// tells; elsewhere there are none.
func Holders(path string) ([]Holder, error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return holders(path)
}
