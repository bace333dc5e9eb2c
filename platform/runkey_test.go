package platform

import "testing"

func TestRunCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want string
		argv []string
	}{
		{`"C:\Program Files\Intermission\intermission.exe" tray`, []string{`C:\Program Files\Intermission\intermission.exe`, "tray"}},
		{`"C:\i.exe" "" "a b" c\d\`, []string{`C:\i.exe`, "", "a b", `c\d\`}},
		{`"C:\i.exe" "a b\\" "say \"hi\"" "\\\"" "a\\\\\"b"`, []string{`C:\i.exe`, `a b\`, `say "hi"`, `\"`, `a\\"b`}},
	} {
		if got := runCommand(tt.argv); got != tt.want {
			t.Errorf("%q:\ngot  %s\nwant %s", tt.argv, got, tt.want)
		}
	}
}

func TestStartupDisapproved(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		value []byte
		want  bool
	}{
		"none":                    {nil, false},
		"on":                      {[]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false},
		"off by Task Manager":     {[]byte{3, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 1}, true},
		"on, as Windows 11 says":  {[]byte{6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, false},
		"off, as Windows 11 says": {[]byte{7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, true},
	} {
		if got := startupDisapproved(tt.value); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
