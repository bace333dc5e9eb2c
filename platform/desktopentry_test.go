package platform

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEntryExec(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{`/usr/bin/intermission tray`, []string{"/usr/bin/intermission", "tray"}},
		{`"/opt/my app/i" tray`, []string{"/opt/my app/i", "tray"}},
		{`/i --a=b ""`, []string{"/i", "--a=b", ""}},
		{`/i 100%% "%%f %%%%"`, []string{"/i", "100%", "%f %%"}},
		{`/i "say \\"hi\\""`, []string{"/i", `say "hi"`}},
		{`/i "\\$HOME \\` + "`id\\\\`" + `"`, []string{"/i", "$HOME `id`"}},
		{`/i "a\\\\b"`, []string{"/i", `a\b`}},
		{`/i "~" "#" "a;b" "ü"`, []string{"/i", "~", "#", "a;b", "ü"}},
	} {
		if got := entryExec(tt.argv); got != tt.want {
			t.Errorf("%q:\ngot  %s\nwant %s", tt.argv, got, tt.want)
		}
	}
}

// readExec takes a command line apart by the specification: the escapes of a
// string first, then quotes and field codes.
func readExec(value string) (argv []string, err error) {
	var s strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '\\' {
			s.WriteByte(value[i])
			continue
		}
		i++
		if i == len(value) {
			return nil, errors.New("it ends in an escape")
		}
		c, ok := map[byte]byte{'s': ' ', 'n': '\n', 't': '\t', 'r': '\r', '\\': '\\'}[value[i]]
		if !ok {
			return nil, errors.New("an escape that a string doesn't have")
		}
		s.WriteByte(c)
	}
	line := s.String()
	for line != "" {
		var arg strings.Builder
		if line[0] == '"' {
			i := 1
			for ; i < len(line) && line[i] != '"'; i++ {
				if strings.ContainsRune("`$", rune(line[i])) {
					return nil, errors.New("a reserved character isn't escaped")
				}
				if line[i] == '\\' {
					if i++; i == len(line) || !strings.ContainsRune("\"`$\\", rune(line[i])) {
						return nil, errors.New("a backslash before nothing")
					}
				}
				arg.WriteByte(line[i])
			}
			if i == len(line) {
				return nil, errors.New("a quote is open")
			}
			line = line[i+1:]
		} else {
			word, _, _ := strings.Cut(line, " ")
			if strings.ContainsAny(word, "\t\n\"'\\><~|&;$*?#()`") {
				return nil, errors.New("a reserved character isn't quoted")
			}
			arg.WriteString(word)
			line = line[len(word):]
		}
		if line != "" && line[0] != ' ' {
			return nil, errors.New("arguments without a space between them")
		}
		line = strings.TrimPrefix(line, " ")
		parts := strings.Split(arg.String(), "%%")
		if strings.Contains(strings.Join(parts, ""), "%") {
			return nil, errors.New("a field code")
		}
		argv = append(argv, strings.Join(parts, "%"))
	}
	return argv, nil
}

func TestEntryExecIsReadBack(t *testing.T) {
	t.Parallel()
	arg := rapid.OneOf(rapid.StringMatching(`[a-z /\\"'$%~;&|<>*?#()=`+"`"+`]{0,12}`), rapid.StringMatching(`[^\x00-\x1f\x7f]{0,8}`))
	rapid.Check(t, func(t *rapid.T) {
		argv := append([]string{"/" + arg.Draw(t, "program")}, rapid.SliceOfN(arg, 0, 4).Draw(t, "arguments")...)
		got, err := readExec(entryExec(argv))
		if err != nil || !slices.Equal(got, argv) {
			t.Fatalf("%q is written as %s and read as %q, %v", argv, entryExec(argv), got, err)
		}
	})
}

func TestEntryStarts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, entry string
		want        bool
	}{
		{"as we write it", string(Autostart{Argv: []string{"/i"}}.desktopEntry()), true},
		{"switched off by us", string(Autostart{Argv: []string{"/i"}}.desktopEntry("Hidden=true")), false},
		{"by GNOME", "[Desktop Entry]\nExec=/i\nX-GNOME-Autostart-enabled=false\n", false},
		{"by MATE", "[Desktop Entry]\nExec=/i\nX-MATE-Autostart-enabled = false\n", false},
		{"on again", "[Desktop Entry]\nExec=/i\nHidden=false\nX-GNOME-Autostart-enabled=true", true},
		{"in a comment", "[Desktop Entry]\nExec=/i\n#Hidden=true\n", true},
		{"in another group", "[Desktop Entry]\nExec=/i\n[Desktop Action x]\nHidden=true\n", true},
		{"nothing to start", "[Desktop Entry]\nName=x\n", false},
		{"no entry", "Exec=/i\n", false},
		{"empty", "", false},
	} {
		if got := entryStarts(entryKeys([]byte(tt.entry))); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestAutostartCheck(t *testing.T) {
	t.Parallel()
	good := Autostart{"intermission-tray", "Intermission", "Sessions wait for you", []string{"/i", "tray"}}
	if err := good.check(); err != nil {
		t.Error(err)
	}
	for name, a := range map[string]Autostart{
		"no name":          {"", "x", "x", []string{"/i"}},
		"a path":           {"../x", "x", "x", []string{"/i"}},
		"a path backwards": {`..\x`, "x", "x", []string{"/i"}},
		"a hidden file":    {".x", "x", "x", []string{"/i"}},
		"a relative path":  {"x", "x", "x", []string{"i"}},
		"no program":       {"x", "x", "x", nil},
		"two lines":        {"x", "x\nExec=/bin/evil", "x", []string{"/i"}},
		"a NUL":            {"x", "x", "x", []string{"/i", "\x00"}},
	} {
		if a.check() == nil {
			t.Errorf("%s: taken", name)
		}
		if a.Enable() == nil {
			t.Errorf("%s: enabled", name)
		}
	}
}
