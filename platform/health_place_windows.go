package platform

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// checkPrivate looks at the owner: who else may read is told by the lists of the directory above.
func checkPrivate(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "trust", Path: path, Err: errors.New("is a link; remove it or choose another directory")}
	}
	sd, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return err
	}
	return checkOwner(path, sd)
}

// checkWritable knows of the attribute alone: lists of access are found out by writing only.
func checkWritable(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() && info.Mode().Perm()&0o200 == 0 {
		err = fs.ErrPermission
	}
	return err
}

func freeSpace(path string) (free uint64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(name, &free, nil, nil)
	}
	return free, err
}
