package platform

import (
	"os"
	"path/filepath"
)

func thenShell(argv []string) []string {
	return append([]string{filepath.Join(os.Getenv("SystemRoot"), "System32", "cmd.exe"), "/k"}, argv...)
}

// TitleBesideIcon says that the tray's title is shown beside its icon.
const TitleBesideIcon = false

// TrayBeforeLoop says that icon and title can be set before the tray's loop runs.
const TrayBeforeLoop = false
