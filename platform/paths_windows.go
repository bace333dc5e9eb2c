package platform

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

const homeVariable = "APPDATA and LOCALAPPDATA"

// defaultDirectories puts what roams in APPDATA and what belongs to this machine in LOCALAPPDATA.
func defaultDirectories(getenv func(string) string) directories {
	var d directories
	if v := getenv("APPDATA"); filepath.IsAbs(v) {
		d.config = filepath.Join(v, app)
	}
	if v := getenv("LOCALAPPDATA"); filepath.IsAbs(v) {
		d.state = filepath.Join(v, app)
		d.log = filepath.Join(d.state, "log")
	}
	return d
}

// socketName makes a pipe's name from user and state directory, since pipes of all users share one name space.
func socketName(d directories) (string, error) {
	sid, err := userSID()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(sid + "\x00" + strings.ToLower(d.state)))
	return `\\.\pipe\` + app + "-" + hex.EncodeToString(sum[:16]), nil
}
