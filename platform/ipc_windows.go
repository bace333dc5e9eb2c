package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// privatePipe lets in the user of this process only, and nobody by the network;
// administrators could change that, as they can everything.
func privatePipe() (*winio.PipeConfig, error) {
	sid, err := userSID()
	if err != nil {
		return nil, err
	}
	return &winio.PipeConfig{SecurityDescriptor: "O:" + sid + "D:P(D;;GA;;;NU)(A;;GA;;;" + sid + ")"}, nil
}

// Listen listens on a named pipe that the system lets only the same user connect
// to. A name that is in use is an error.
func Listen(path string) (net.Listener, error) {
	config, err := privatePipe()
	if err != nil {
		return nil, err
	}
	l, err := winio.ListenPipe(path, config)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return nil, fmt.Errorf("cannot listen on %s: another process listens there; stop it first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return l, nil
}

// Dial connects to the pipe and makes sure that it is ours: anybody can make a
// pipe of any name. It returns ErrNoListener when nobody listens.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	c, err := winio.DialPipeContext(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoListener
	}
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", path, err)
	}
	if err := checkPipe(path, c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func checkPipe(path string, c net.Conn) error {
	f, ok := c.(interface{ Fd() uintptr })
	if !ok {
		return fmt.Errorf("cannot tell who owns %s", path)
	}
	sd, err := windows.GetSecurityInfo(windows.Handle(f.Fd()), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("cannot tell who owns %s: %w", path, err)
	}
	return checkOwner(path, sd)
}
