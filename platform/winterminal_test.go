package platform

import (
	"slices"
	"testing"
)

func TestTerminalTabCommand(t *testing.T) {
	t.Parallel()
	got := terminalTabCommand(`C:\wt.exe`, []string{`C:\a;b\i.exe`, "open", "x;y"}, `D:\p;q`)
	want := []string{`C:\wt.exe`, "-w", "new", "-d", `D:\p\;q`, `C:\a\;b\i.exe`, "open", `x\;y`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := terminalTabCommand("wt", []string{"i"}, ""); !slices.Equal(got, []string{"wt", "-w", "new", "i"}) {
		t.Errorf("%q", got)
	}
}

func TestCheckBatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		argv []string
		ok   bool
	}{
		{[]string{`C:\i.exe`, `"&calc&"`}, true},
		{[]string{`C:\opencode.cmd`, "attach", "http://127.0.0.1:4096", "--session", "ses_1", `C:\a b`}, true},
		{[]string{`C:\opencode.cmd`, `"&calc&"`}, false},
		{[]string{`C:\opencode.CMD`, "%PATH%"}, false},
		{[]string{`C:\opencode.bat`, "a^b"}, false},
		{[]string{`C:\opencode.bat`, "a\nb"}, false},
	} {
		if err := checkBatch(tt.argv); (err == nil) != tt.ok {
			t.Errorf("%q: %v", tt.argv, err)
		}
	}
}
