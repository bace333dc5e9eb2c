package platform

import "errors"

// ErrNoListener says that nobody listens on the socket: the file is absent, or left over from a dead listener.
var ErrNoListener = errors.New("nobody listens on the socket")
