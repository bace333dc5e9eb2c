package platform

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// InstallDesktopEntry puts the program into the applications menu: on Linux the
// entry $XDG_DATA_HOME/applications/intermission.desktop, and its icon (an SVG)
// beside it. One that a package has installed for all users is left to stand
// alone. It writes only what differs. On Windows and macOS the
// installer does this, and here is nothing to do.
func (a Autostart) InstallDesktopEntry(icon []byte) error {
	err := a.check()
	if err == nil {
		err = a.installDesktopEntry(icon)
	}
	if err != nil {
		return fmt.Errorf("cannot install the menu entry: %w", err)
	}
	return nil
}

// desktopEntry words the program as a desktop entry (Desktop Entry Specification
// 1.5), with further lines at the end.
func (a Autostart) desktopEntry(further ...string) []byte {
	lines := append([]string{
		"[Desktop Entry]",
		"Type=Application",
		"Name=" + entryString(a.Title),
		"Comment=" + entryString(a.Comment),
		"Icon=" + app,
		"Exec=" + entryExec(a.Argv),
		"TryExec=" + entryString(a.Argv[0]),
		"Terminal=false",
		"Categories=Development;",
	}, further...)
	return []byte(strings.Join(lines, "\n") + "\n")
}

// entryString escapes a value of the type string.
func entryString(s string) string {
	s = strings.ReplaceAll(s, `\`, `\\`)
	if rest, ok := strings.CutPrefix(s, " "); ok { // it would be skipped
		s = `\s` + rest
	}
	return s
}

// entryExec quotes a command line. Two rules lie over each other: those of the
// quoted argument, and those of any string; so a backslash becomes four.
func entryExec(argv []string) string {
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		arg = strings.ReplaceAll(arg, "%", "%%")
		if arg == "" || strings.Trim(arg, entryPlain) != "" {
			arg = `"` + entryReserved.Replace(arg) + `"`
		}
		quoted[i] = arg
	}
	return entryString(strings.Join(quoted, " "))
}

// entryPlain has the characters that need no quotes; more get them than must.
const entryPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=+,@%"

var entryReserved = strings.NewReplacer(`"`, `\"`, "`", "\\`", `$`, `\$`, `\`, `\\`)

// checkEntryProgram refuses what the specification can't express.
func checkEntryProgram(argv []string) error {
	if strings.Contains(argv[0], "=") {
		return errors.New("a desktop entry can't name a program with = in its path; move it")
	}
	for _, s := range argv {
		if !utf8.ValidString(s) {
			return fmt.Errorf("a desktop entry can't have %q, which is no UTF-8", s)
		}
	}
	return nil
}

// entryKeys reads the keys of a desktop entry, values as they stand there. What
// is no such entry has none.
func entryKeys(data []byte) map[string]string {
	keys := map[string]string{}
	in := false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			in = line == "[Desktop Entry]"
			continue
		}
		if key, value, ok := strings.Cut(line, "="); ok && in && !strings.HasPrefix(line, "#") {
			keys[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return keys
}

// entryStarts tells whether a desktop starts the program of an autostart entry
// with these keys. Each settings program has its own way to switch it off.
func entryStarts(keys map[string]string) bool {
	off := keys["Hidden"] == "true" || keys["X-GNOME-Autostart-enabled"] == "false" || keys["X-MATE-Autostart-enabled"] == "false"
	return !off && keys["Exec"] != ""
}
