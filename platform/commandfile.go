package platform

import "strings"

// commandFile is a shell script that removes itself, runs argv in dir ("" is where
// it is started) and holds the window when it failed: macOS's Terminal runs a
// file, and takes no arguments.
func commandFile(argv []string, dir string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nrm -f -- \"$0\"\n")
	if dir != "" {
		b.WriteString("cd -- " + shellQuote(dir) + " && ")
	}
	for _, arg := range argv {
		b.WriteString(shellQuote(arg) + " ")
	}
	b.WriteString(`
status=$?
if [ "$status" -ne 0 ]; then
	printf '\nIt ended with status %s. Press Enter to close this window.' "$status"
	read -r answer
fi
`)
	return b.String()
}

// shellQuote makes one word of s, in which no shell finds anything.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
