package supervisor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"intermission/platform"
	"intermission/supervisor/opencode"
)

// FuzzOwnFiles reads the files of our state and configuration that are not TOML, as a
// crash, an editor or another program may have left them. What can't be believed counts
// as absent, or is an error that quotes nothing: a line may be a password.
func FuzzOwnFiles(f *testing.F) {
	const secret = "a-password-that-must-not-leak"
	whole, err := json.Marshal(record{
		Incarnation: opencode.Incarnation{ID: "inc", Generation: opencode.V2, Version: "2.2.0", URL: "http://127.0.0.1:1", PID: 12, Password: secret},
		Identity:    platform.Identity{PID: 12}, Mark: "m", Ready: true, Since: 1790000000000, Places: map[string]string{"HOME": "/home/u"},
	})
	if err != nil {
		f.Fatal(err)
	}
	memory, err := json.Marshal(environmentMemory{Login: []string{"PATH=/bin", "A=b"}, LoginAt: 1790000000000, Process: []string{"HOME=/home/u"}, Places: map[string]string{}})
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(whole), string(whole[:60]), string(memory), string(memory[:30]), "running\n", "stopped", " running", "gone", "", "null", "[]", "{}", "\x00", `{"id":"x","pid":"7"}`,
		`{"Program":"/bin/opencode","Args":["serve"],"Version":"2.2.0","Generation":"v2"}`, `{"Generation":"v9"}`,
		"# a comment\nHTTPS_PROXY=http://u:" + secret + "@h:3128\nA=\"quoted\"\nB='q'\n", secret + "\n", "A=\"" + secret + "\n", "=\n", "A B=c\n", "A=b\x00c\n", "https_proxy=x\r\n",
	} {
		for kind := range byte(5) {
			f.Add(kind, []byte(text))
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		put := func(name string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		switch kind % 5 {
		case 0:
			path := put("server.json")
			r, ok := loadRecord(path)
			if !ok {
				if !reflect.DeepEqual(r, record{}) {
					t.Errorf("of what is no record there is %+v", r)
				}
				return
			}
			if r.ID == "" {
				t.Error("a record of nobody")
			}
			if err := r.save(path); err != nil {
				t.Fatal(err)
			}
			if again, ok := loadRecord(path); !ok || !reflect.DeepEqual(r, again) {
				t.Errorf("written and read again, %+v became %+v", r, again)
			}
		case 1:
			put("program.json")
			if i := loadProgram(dir, []string{"A=b"}); i != nil && (i.Generation == "" || !slices.Equal(i.Env, []string{"A=b"})) {
				t.Errorf("the program %+v", i)
			}
		case 2:
			put("environment.json")
			m := recallEnvironment(dir)
			if err := m.save(dir); err != nil {
				t.Fatal(err)
			}
			if again := recallEnvironment(dir); !reflect.DeepEqual(m, again) {
				t.Errorf("written and read again, %+v became %+v", m, again)
			}
		case 3:
			put("wish")
			w, err := loadWish(dir)
			if err == nil && w != WishRunning && w != WishStopped || err != nil && w != "" {
				t.Errorf("the wish %q, %v", w, err)
			}
		case 4:
			checkKept(t, put("environment"), string(text))
		}
	})
}

func checkKept(t *testing.T, path, text string) {
	t.Helper()
	entries, err := loadKept(path)
	for _, entry := range entries {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsAny(entry, "\x00\n") || strings.ContainsAny(name, " \t'\"$#") {
			t.Errorf("the variable %q", entry)
		}
	}
	if err != nil {
		for said := range strings.Lines(err.Error()) {
			rest, ok := strings.CutPrefix(strings.TrimSuffix(said, "\n"), path+":")
			if number, words, _ := strings.Cut(rest, ":"); !ok || strings.Trim(number, "0123456789") != "" || !strings.HasPrefix(words, " this line is not NAME=VALUE") {
				t.Errorf("it says %q", said)
			}
		}
	}
	// A value that is kept is the one that is read.
	value := strings.Map(func(r rune) rune {
		if strings.ContainsRune("\n\r\x00", r) {
			return -1
		}
		return r
	}, text)
	if strings.TrimSpace(value) == "" || strings.ContainsFunc(value, unicode.IsControl) {
		return
	}
	now := withKept(text, "HTTPS_PROXY", value)
	if err := os.WriteFile(path, []byte(now), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, _ = loadKept(path)
	if got := lookUp(entries, "HTTPS_PROXY"); got != value {
		t.Errorf("kept %q, read %q", value, got)
	}
}
