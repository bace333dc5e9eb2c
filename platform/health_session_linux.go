package platform

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

func foreignRuntimeDir(getenv func(string) string) string {
	dir := getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(dir) || os.Geteuid() == 0 {
		return ""
	}
	info, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return dir
	}
	return ""
}

// systemdRuns is sd_booted(3).
func systemdRuns() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

func noUserManager() bool {
	if !systemdRuns() {
		return false
	}
	_, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Geteuid()), "systemd"))
	return os.IsNotExist(err)
}

func timeServiceAct() string {
	if systemdRuns() {
		return "let the clock be set by a time server: timedatectl set-ntp true"
	}
	return "let the clock be set by a time server: set up a time service (chrony, ntpd)"
}
