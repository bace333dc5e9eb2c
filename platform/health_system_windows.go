package platform

import (
	"fmt"

	"golang.org/x/sys/windows"
)

func systemName() string {
	v := windows.RtlGetVersion()
	return fmt.Sprintf("Windows %d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
}
