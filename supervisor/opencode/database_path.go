package opencode

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

var unsafeInFileName = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// DatabasePath is the absolute path of the database that a server of this
// version uses in the environment that getenv reads: OPENCODE_DB, else one file
// for the channels latest, beta and prod, else one a channel. The rules are
// those of the server (read in the program of 1.18.33, November 2026). It fails
// when the environment names no place that we could find again.
func DatabasePath(getenv func(string) string, version string) (string, error) {
	named := getenv("OPENCODE_DB")
	switch {
	case named == ":memory:":
		return "", errors.New("cannot supervise a server whose database is in memory; unset OPENCODE_DB")
	case filepath.IsAbs(named):
		return filepath.Clean(named), nil
	}
	dir, err := dataDirectory(getenv)
	if err != nil {
		return "", err
	}
	if named != "" {
		return filepath.Join(dir, named), nil
	}
	return filepath.Join(dir, databaseName(getenv, version)), nil
}

func databaseName(getenv func(string) string, version string) string {
	if off := getenv("OPENCODE_DISABLE_CHANNEL_DB"); off == "1" || off == "true" {
		return "opencode.db"
	}
	switch channel := channelOf(version); channel {
	case "latest", "beta", "prod":
		return "opencode.db"
	default:
		return "opencode-" + unsafeInFileName.ReplaceAllString(channel, "-") + ".db"
	}
}

func dataDirectory(getenv func(string) string) (string, error) {
	data := getenv("XDG_DATA_HOME")
	if data == "" {
		home := getenv("HOME")
		if home == "" {
			home = getenv("USERPROFILE")
		}
		if home == "" {
			return "", errors.New("cannot tell where the server's database is: neither XDG_DATA_HOME nor HOME is set")
		}
		data = filepath.Join(home, ".local", "share")
	}
	if !filepath.IsAbs(data) {
		// The server would resolve it against its own working directory.
		return "", fmt.Errorf("cannot tell where the server's database is: %s is not an absolute path", data)
	}
	return filepath.Join(data, "opencode"), nil
}
