package platform

import (
	"errors"
	"net"
)

// ErrForeignListener says that another user's program listens at an address.
var ErrForeignListener = errors.New("another user's program listens there")

// CheckListener makes sure that who listens at addr, to which a connection is open, runs
// as us: when a server ends, any user of the machine can take its port, and would be sent
// what is for the server. Only Linux tells; elsewhere nobody is refused.
func CheckListener(addr net.Addr) error { return checkListener(addr) }
