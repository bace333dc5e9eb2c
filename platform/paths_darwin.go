package platform

import "path/filepath"

// defaultDirectories follows Apple's "File System Programming Guide", unless XDG
// variables are set. There is no runtime directory: TMPDIR differs between
// launchd and a remote shell, so socket and lock stay in the state directory.
func defaultDirectories(getenv func(string) string) directories {
	d := directories{
		config:  xdgDirectory(getenv, "XDG_CONFIG_HOME", "Library/Application Support"),
		state:   xdgDirectory(getenv, "XDG_STATE_HOME", "Library/Application Support"),
		log:     xdgDirectory(getenv, "", "Library/Logs"),
		runtime: xdgDirectory(getenv, "XDG_RUNTIME_DIR", ""),
	}
	if filepath.IsAbs(getenv("XDG_STATE_HOME")) {
		d.log = filepath.Join(d.state, "log")
	}
	return d
}
