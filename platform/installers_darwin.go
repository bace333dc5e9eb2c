package platform

import "path/filepath"

// InstallerPlaces are the directories, apart from those below the home directory that
// each system has, where installers put programs without always putting the directory on the PATH.
func InstallerPlaces(home string) []string {
	return []string{filepath.Join(home, "Library", "pnpm"), "/usr/local/bin", "/opt/homebrew/bin"}
}
