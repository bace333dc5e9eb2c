package platform

import "path/filepath"

func defaultDirectories(getenv func(string) string) directories {
	d := directories{
		config:  xdgDirectory(getenv, "XDG_CONFIG_HOME", ".config"),
		state:   xdgDirectory(getenv, "XDG_STATE_HOME", ".local/state"),
		runtime: xdgDirectory(getenv, "XDG_RUNTIME_DIR", ""),
	}
	if d.state != "" {
		d.log = filepath.Join(d.state, "log")
	}
	return d
}
