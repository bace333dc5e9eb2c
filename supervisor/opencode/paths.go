package opencode

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// RegistrationDir is where v2 servers register: <XDG_STATE_HOME>/opencode of the
// server's environment. OpenCode uses the XDG layout on every OS.
func (i *Install) RegistrationDir() string {
	env := environ(i.Env)
	state := env.get("XDG_STATE_HOME")
	if state == "" {
		state = filepath.Join(env.home(), ".local", "state")
	}
	return filepath.Join(state, "opencode")
}

// LockPath is the file that a running server of this channel holds locked; ""
// for v1, which takes no lock. It is an empty file that is never removed, and
// may not exist before the first start.
func (i *Install) LockPath() string {
	if i.Generation != V2 {
		return ""
	}
	dir := i.RegistrationDir()
	names := registrationNames(channelOf(i.Version))
	for _, name := range names {
		lock := filepath.Join(dir, name+".lock")
		if _, err := os.Stat(lock); err == nil {
			return lock
		}
	}
	return filepath.Join(dir, names[0]+".lock")
}

// DatabasePath is the database that this program's server uses.
func (i *Install) DatabasePath() (string, error) {
	return DatabasePath(environ(i.Env).get, i.Version)
}

// channelOf tells the release channel by the version: 0.0.0-<channel>-<build>,
// where the channel may itself hold dashes. A plain version is of channel latest.
func channelOf(version string) string {
	rest, ok := strings.CutPrefix(version, "0.0.0-")
	if !ok {
		return "latest"
	}
	if cut := strings.LastIndexByte(rest, '-'); cut > 0 {
		return rest[:cut]
	}
	return rest
}

// registrationNames are the names that the registration of a channel can have,
// the likeliest first. Both the plain and the hashed form were seen (2026).
func registrationNames(channel string) []string {
	if channel == "latest" {
		return []string{"service.json"}
	}
	sum := sha1.Sum([]byte(channel))
	plain, hashed := "service-"+channel+".json", "service-"+hex.EncodeToString(sum[:])+".json"
	if strings.ContainsAny(channel, `/\:`) {
		return []string{hashed}
	}
	return []string{plain, hashed}
}
