package platform

import "runtime"

// SystemName is the operating system as its maker calls it, its kernel and its
// processor: "Debian GNU/Linux 13 (trixie), Linux 6.12.41, amd64".
func SystemName() string { return systemName() + ", " + runtime.GOARCH }
