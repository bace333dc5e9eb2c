package platform

import (
	"bytes"
	"encoding/xml"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzOutputs reads what other programs print, and what stands in definitions that others
// may have written: login shells, systemctl, launchctl, the Task Scheduler, desktops, the
// kernel. What isn't understood is nothing. And it writes such definitions, of programs
// with any name: what comes of it is that program and no further line, or an error.
func FuzzOutputs(f *testing.F) {
	s := SupervisorService("/usr/bin/intermission", "1.2.3")
	unit, err := SystemdUnit(s, SystemdOptions{})
	if err != nil {
		f.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		"PATH=/bin\x00HOME=/home/u\x00A=two\nlines\x00", "PATH=/bin\nA=two\nlines\nBASH_FUNC_x%%=() { :;\n}\n", "\x1b]0;t\x07PATH=/bin\x00", "=\x00==\x00A\x00",
		unit, strings.ReplaceAll(unit, "\n", "\r\n"), `/a/b "/home/a b/\"c\"\$x" "" /d`, `"\`, "ActiveState=active\nSubState=running\nMainPID=7\n",
		string(s.launchAgent("/tmp/e")), "org.intermission.intermission = {\n\tstate = running\n\tpid = 12\n\t\tpid = 13\n}\n", "\tpid = -1\n", "\t\"org.intermission.intermission\" => disabled\n",
		s.logonTask(`PC\ann`), "<Task>", string(Autostart{Name: "a", Title: "T", Argv: s.Argv}.desktopEntry("X-A=b")), "[Desktop Entry]\nExec=/a b\nHidden=true\n[x]\nExec=c",
		string(self), "1 (a) b) S 1 2 3", "/opt/a b/$x`y\\\"%f", "/a\nExecStart=/evil", "/a\u0085b", "--", "/tmp/<&>]]>",
	} {
		for kind := range byte(6) {
			f.Add(kind, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		switch kind % 6 {
		case 0:
			checkEnvironment(t, text)
		case 1:
			words := shellWords(string(text))
			if n := len(strings.Join(words, "")); n > len(text) || len(words) > len(text) {
				t.Errorf("%q has the words %q", text, words)
			}
			if version, ours := unitVersion(text); !ours && version != "" || strings.Contains(version, "\n") {
				t.Errorf("%q is of version %q", text, version)
			}
			if line := lastLine(string(text)); strings.Contains(line, "\n") {
				t.Errorf("the last line of %q is %q", text, line)
			}
			if !sameUnit(text, text) {
				t.Errorf("%q differs from itself", text)
			}
		case 2:
			if state, pid := launchctlState(string(text)); strings.Contains(state, "\n") || pid != 0 && !bytes.Contains(text, []byte("\tpid = ")) {
				t.Errorf("%q is %q, %d", text, state, pid)
			}
			if launchctlDisabled(string(text), s.launchAgentLabel()) && !bytes.Contains(text, []byte(s.launchAgentLabel())) {
				t.Errorf("%q switches ours off", text)
			}
			if program := launchAgentProgram(text); !utf8.ValidString(program) || len(program) > len(text) {
				t.Errorf("%q starts %q", text, program)
			}
			_, _ = launchAgentVersion(text), launchAgentDisabled(text)
		case 3:
			if parsed, err := parseTask(string(text)); err == nil && !parsed.same(parsed, func(a, b string) bool { return a == b }) {
				t.Errorf("%q differs from itself", text)
			}
			keys := entryKeys(text)
			for key, value := range keys {
				if strings.ContainsAny(key+value, "\n") || strings.Contains(key, "=") {
					t.Errorf("the key %q is %q", key, value)
				}
			}
			if entryStarts(keys) && keys["Exec"] == "" {
				t.Errorf("%q starts nothing", text)
			}
			_ = entryProgram(keys["Exec"])
		case 4:
			if st, err := parseStat(text); err == nil && st.identity(7, "boot").Start == "" {
				t.Errorf("%q is %+v", text, st)
			}
		case 5:
			checkDefinitions(t, string(text))
		}
	})
}

// checkEnvironment has a shell print an environment amid noise, in any pieces.
func checkEnvironment(t *testing.T, noise []byte) {
	t.Helper()
	for _, entry := range parseEnvironment(noise) {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || !isVariable(name) || strings.Contains(entry, "\x00") || len(entry) > len(noise) {
			t.Fatalf("%q has the variable %q", noise, entry)
		}
	}
	const nonce = "N0NCE"
	open, end := "intermission:"+nonce+":env:", "intermission:"+nonce+":end:"
	if bytes.Contains(noise, []byte(nonce)) || len(noise) > 4<<10 {
		return
	}
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	answer := open + "PATH=/bin\x00A=b\x00" + end
	_, err = w.WriteString(string(noise) + answer + string(noise) + open + string(noise) + end + string(noise) + answer + string(noise))
	must(t, errors.Join(err, w.Close()))
	// A copy that has something printed into it doesn't count.
	if got, err := readEnvironment(r, nonce); err != nil || !slices.Equal(got, []string{"PATH=/bin", "A=b"}) {
		t.Errorf("amid %q it is %q, %v", noise, got, err)
	}
}

// checkDefinitions has each system start a program of that name.
func checkDefinitions(t *testing.T, name string) {
	t.Helper()
	program := filepath.Join("/opt", "x"+name)
	s := SupervisorService(program, "1.2.3")
	s.Env = map[string]string{"INTERMISSION_CONFIG": name}
	plain, err := SystemdUnit(Service{Name: s.Name, Title: s.Title, Comment: s.Comment, Version: s.Version, Argv: []string{"/a"}, Env: map[string]string{"A": "b"}}, SystemdOptions{})
	must(t, err)
	lines := func(s string) int { return strings.Count(s, "\n") }
	if unit, err := SystemdUnit(s, SystemdOptions{}); err == nil {
		if lines(unit) != lines(plain) || strings.ContainsFunc(unit, func(r rune) bool { return r != '\n' && unicode.IsControl(r) && r < 0x80 }) || !utf8.ValidString(unit) {
			t.Errorf("the unit of %q:\n%q", program, unit)
		}
		if version, ours := unitVersion([]byte(unit)); !ours || version != "1.2.3" {
			t.Errorf("the unit of %q is of version %q", program, version)
		}
	}
	a := Autostart{Name: "a", Title: "T", Comment: "C", Argv: []string{program, name}}
	if a.check() == nil && checkEntryProgram(a.Argv) == nil {
		entry := a.desktopEntry()
		if lines(string(entry)) != lines(string(Autostart{Name: "a", Title: "T", Comment: "C", Argv: []string{"/a"}}.desktopEntry())) {
			t.Errorf("the entry of %q:\n%q", program, entry)
		}
		if !entryStarts(entryKeys(entry)) {
			t.Errorf("the entry of %q starts nothing: %q", program, entry)
		}
	}
	list := s.launchAgent("/tmp/e")
	var nothing struct{}
	if err := xml.Unmarshal(list, &nothing); err != nil {
		t.Errorf("the list of %q: %v", program, err)
	}
	printable := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r >= 0xfffe && r <= 0xffff || r == utf8.RuneError })
	if got := launchAgentProgram(list); printable && got != program {
		t.Errorf("the list of %q starts %q", program, got)
	}
	if s.checkTask() == nil && printable {
		parsed, err := parseTask(s.logonTask("PC\\ann"))
		if err != nil || parsed.Command != program || parsed.User != `PC\ann` || parsed.RunLevel != "LeastPrivilege" {
			t.Errorf("the task of %q is %+v, %v", program, parsed, err)
		}
	}
}
