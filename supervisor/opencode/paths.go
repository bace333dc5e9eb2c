package opencode

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"
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
//
// Where a channel's files can have two names, what the server has left decides:
// its newest registration, else a hashed lock, since a plain one may be ours.
// Before the first start nothing is left, and the plain name is a guess: that
// this lock is free then doesn't prove that no server is up.
func (i *Install) LockPath() string {
	if i.Generation != V2 {
		return ""
	}
	dir := i.RegistrationDir()
	names := registrationNames(channelOf(i.Version))
	name := names[0]
	var newest time.Time
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(dir, n)); err == nil && info.ModTime().After(newest) {
			name, newest = n, info.ModTime()
		}
	}
	if newest.IsZero() {
		for _, n := range names[1:] {
			if _, err := os.Stat(filepath.Join(dir, n+".lock")); err == nil {
				name = n
			}
		}
	}
	return filepath.Join(dir, name+".lock")
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
// the plain one first. Both the plain and the hashed form were seen (2026); which
// one a build uses can't be told by its version.
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
