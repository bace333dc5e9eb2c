package platform

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewriteGolden = flag.Bool("rewrite-golden", false, "write the golden files anew")

// golden holds got against a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewriteGolden {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s: -want +got:\n%s", name, diff)
	}
}

func agentService() Service {
	return Service{
		Name:    "intermission",
		Argv:    []string{"/Users/ann lee/bin/intermission & co", "run", "--service"},
		Env:     map[string]string{"INTERMISSION_STATE_DIR": "/Volumes/<big>/state", "INTERMISSION_CONFIG": "/c.toml"},
		Version: "1.2--rc1",
	}
}

func TestSupervisorLaunchAgent(t *testing.T) {
	t.Parallel()
	got := agentService().launchAgent("/Users/ann lee/Library/Logs/intermission/launchd.log")
	golden(t, "launchagent-supervisor.plist", got)
	if v := launchAgentVersion(got); v != "1.2-rc1" {
		t.Errorf("its version is read back as %q", v)
	}
	if p := launchAgentProgram(got); p != agentService().Argv[0] {
		t.Errorf("its program is read back as %q", p)
	}
	if launchAgentDisabled(got) {
		t.Error("it is switched off")
	}
}

// launchdSchema is what launchd.plist(5) of macOS 14 says of the keys that we use,
// and of some that are easily confused with them: the types that each may have, and
// for a dictionary those of its keys; "*" stands for any key.
var launchdSchema = map[string]any{
	"Label": "string", "Disabled": "boolean", "Program": "string",
	"ProgramArguments": "array of string", "EnvironmentVariables": map[string]any{"*": "string"},
	"RunAtLoad": "boolean", "ThrottleInterval": "integer", "ExitTimeOut": "integer", "Nice": "integer",
	"KeepAlive": map[string]any{
		"SuccessfulExit": "boolean", "Crashed": "boolean", "AfterInitialDemand": "boolean",
		"PathState": map[string]any{"*": "boolean"}, "OtherJobEnabled": map[string]any{"*": "boolean"},
	},
	"AbandonProcessGroup": "boolean", "ProcessType": "string", "LimitLoadToSessionType": "string",
	"StandardInPath": "string", "StandardOutPath": "string", "StandardErrorPath": "string",
	"WorkingDirectory": "string", "Umask": "integer",
}

var launchdWords = map[string][]string{
	"ProcessType":            {"Background", "Standard", "Adaptive", "Interactive"},
	"LimitLoadToSessionType": {"Aqua", "Background", "LoginWindow", "StandardIO", "System"},
}

func TestLaunchAgentsKeepToTheSchema(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]byte{
		"supervisor":                     agentService().launchAgent("/var/log"),
		"supervisor without environment": Service{Name: "x", Argv: []string{"/i"}}.launchAgent("/var/log"),
		"tray":                           Autostart{Name: "intermission-tray", Argv: []string{"/i", "tray"}}.launchAgent(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dict, err := parsePlist(list)
			if err != nil {
				t.Fatal(err)
			}
			checkSchema(t, "", dict, launchdSchema)
			for _, key := range []string{"Label", "ProgramArguments"} {
				if dict[key] == nil {
					t.Errorf("%s is required", key)
				}
			}
			for key, words := range launchdWords {
				if word, given := dict[key].(string); given && !slices.Contains(words, word) {
					t.Errorf("%s is %q, no word of launchd's", key, word)
				}
			}
		})
	}
}

// checkSchema holds what was read against the schema.
func checkSchema(t *testing.T, at string, dict, schema map[string]any) {
	t.Helper()
	for key, value := range dict {
		want, known := schema[key]
		if !known {
			want, known = schema["*"]
		}
		if !known {
			t.Errorf("launchd knows no key %s%s", at, key)
			continue
		}
		inner, isDict := value.(map[string]any)
		innerSchema, wantsDict := want.(map[string]any)
		switch {
		case isDict && wantsDict:
			checkSchema(t, at+key+".", inner, innerSchema)
		case isDict != wantsDict || !isDict && plistType(value) != want:
			t.Errorf("%s%s is a %s, not what launchd wants: %v", at, key, plistType(value), want)
		}
	}
}

func plistType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case integer:
		return "integer"
	case []string:
		return "array of string"
	}
	return "dictionary"
}

type integer string

// parsePlist reads a property list whose root is a dictionary. A key that stands
// twice, and what stands where a list can't have it, is an error.
func parsePlist(data []byte) (map[string]any, error) {
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "dict" {
			dict, err := parseDict(d)
			if err != nil {
				return nil, err
			}
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				return nil, err
			}
			return dict, nil
		}
	}
}

func parseDict(d *xml.Decoder) (map[string]any, error) {
	dict, key := map[string]any{}, ""
	for {
		token, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch e := token.(type) {
		case xml.EndElement:
			if key != "" {
				return nil, errors.New("no value for " + key)
			}
			return dict, nil
		case xml.StartElement:
			if (e.Name.Local == "key") != (key == "") {
				return nil, errors.New(e.Name.Local + " after the key " + key)
			}
			if key == "" {
				if err := d.DecodeElement(&key, &e); err != nil {
					return nil, err
				}
				if dict[key] != nil || key == "" {
					return nil, errors.New("twice or empty: the key " + key)
				}
				continue
			}
			if dict[key], err = parseValue(d, e); err != nil {
				return nil, err
			}
			key = ""
		}
	}
}

func parseValue(d *xml.Decoder, e xml.StartElement) (any, error) {
	switch e.Name.Local {
	case "dict":
		return parseDict(d)
	case "true", "false":
		return e.Name.Local == "true", d.Skip()
	case "array":
		var v struct {
			Strings []string `xml:"string"`
		}
		err := d.DecodeElement(&v, &e)
		return v.Strings, err
	case "string", "integer":
		var v string
		err := d.DecodeElement(&v, &e)
		if e.Name.Local == "integer" {
			return integer(v), err
		}
		return v, err
	}
	return nil, errors.New("a property list has no " + e.Name.Local)
}

func TestLaunchctlState(t *testing.T) {
	t.Parallel()
	// As launchctl of macOS 14 prints, shortened.
	const out = `gui/501/org.intermission.intermission = {
	active count = 1
	path = /Users/ann/Library/LaunchAgents/org.intermission.intermission.plist
	state = running

	program = /usr/local/bin/intermission
	environment = {
		state = wrong
		pid => 1
	}
	pid = 4321
	resource coalition = {
		ID = 1
		state = active
	}
}
`
	for _, tt := range []struct {
		out, state string
		pid        int
	}{{out, "running", 4321}, {"gui/501/x = {\n\tstate = not running\n}\n", "not running", 0}, {"", "", 0}} {
		if state, pid := launchctlState(tt.out); state != tt.state || pid != tt.pid {
			t.Errorf("%q, %d; want %q, %d", state, pid, tt.state, tt.pid)
		}
	}
}

func TestLaunchctlDisabled(t *testing.T) {
	t.Parallel()
	const out = "disabled services = {\n\t\t\"org.a\" => disabled\n\t\t\"org.b\" => enabled\n\t\t\"org.c\" => true\n\t\t\"org.d\" => false\n}\n"
	for label, want := range map[string]bool{"org.a": true, "org.b": false, "org.c": true, "org.d": false, "org": false} {
		if got := launchctlDisabled(out, label); got != want {
			t.Errorf("%s: %t", label, got)
		}
	}
}

func TestSameLaunchAgent(t *testing.T) {
	t.Parallel()
	one := Service{Name: "x", Argv: []string{"/p/intermission", "run"}, Version: "1.0"}
	other := one
	other.Version = "2.0-rc.1"
	moved := one
	moved.Argv = []string{"/q/intermission", "run"}
	list := func(s Service) []byte { return s.launchAgent("/l/launchd.log") }
	if !sameLaunchAgent(list(one), list(other)) {
		t.Error("of another version it is taken for another definition")
	}
	if sameLaunchAgent(list(one), list(moved)) || sameLaunchAgent(nil, list(one)) {
		t.Error("another definition is taken for the same")
	}
}
