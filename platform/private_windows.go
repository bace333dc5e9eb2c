package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

// userSID is the user whom this process runs as.
var userSID = sync.OnceValues(func() (string, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return "", fmt.Errorf("cannot tell who the user is: %w", err)
	}
	return u.User.Sid.String(), nil
})

// privateDescriptor allows the user, the system and administrators (who can't be
// kept out) and inherits nothing.
func privateDescriptor() (*windows.SecurityAttributes, error) {
	sid, err := userSID()
	if err != nil {
		return nil, err
	}
	sd, err := windows.SecurityDescriptorFromString(
		"O:" + sid + "D:P(A;OICI;FA;;;" + sid + ")(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)")
	if err != nil {
		return nil, err
	}
	return &windows.SecurityAttributes{
		Length:             uint32(unsafe.Sizeof(windows.SecurityAttributes{})),
		SecurityDescriptor: sd,
	}, nil
}

// EnsurePrivateDir makes sure that the directory exists and is ours. A new one is
// open to the user, the system and administrators only. One that belongs to
// somebody else, or that is a link, is refused: its content can't be trusted.
func EnsurePrivateDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("cannot use the directory %q: the path is relative", path)
	}
	if err := createPrivate(path); err != nil {
		return fmt.Errorf("cannot create the directory %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() { // a junction is ModeIrregular, a link ModeSymlink
		return fmt.Errorf("%s is a link or not a directory; remove it or choose another directory", path)
	}
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("cannot tell who owns %s: %w", path, err)
	}
	return checkOwner(path, sd)
}

func createPrivate(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	sa, err := privateDescriptor()
	if err != nil {
		return err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	err = windows.CreateDirectory(name, sa)
	if errors.Is(err, windows.ERROR_ALREADY_EXISTS) {
		return nil
	}
	return err
}

// checkOwner refuses what belongs to another user. What an elevated process of
// the user makes may belong to the group of administrators.
func checkOwner(name string, sd *windows.SECURITY_DESCRIPTOR) error {
	owner, _, err := sd.Owner()
	if err != nil {
		return fmt.Errorf("cannot tell who owns %s: %w", name, err)
	}
	sid, err := userSID()
	if err != nil {
		return err
	}
	if owner.String() != sid && !owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) {
		return fmt.Errorf("%s belongs to %s and not to you; remove it or choose another directory", name, owner)
	}
	return nil
}

// checkTrusted has nothing to say: below a user's profile nobody else writes.
func checkTrusted(string, fs.FileInfo) error { return nil }

// openAtOnce is nothing: to open a file never waits for somebody else.
const openAtOnce = 0

// syncDirectory has nothing to do: NTFS logs a rename, and a directory can't be flushed.
func syncDirectory(string) error { return nil }
