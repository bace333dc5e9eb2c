package platform

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func taskService() Service {
	return Service{
		Name: "intermission", Title: "Intermission supervisor", Comment: "Keeps <OpenCode> running",
		Argv:    []string{`C:\Users\Ann & Lee\bin\intermission.exe`, "run", "--service", `a "b" c\`, ""},
		Version: "1.2-rc1",
	}
}

const ann = `PC\Ann & Lee`

func TestLogonTask(t *testing.T) {
	t.Parallel()
	golden(t, "logontask.xml", []byte(taskService().logonTask(ann)))
}

// The elements, in the order that the schema of version 1.2 wants where it wants one
// (a trigger's and an action's), and the values that differ from the scheduler's
// defaults and must.
func TestLogonTaskSaysWhatTheSchedulerMustNotAssume(t *testing.T) {
	t.Parallel()
	text := taskService().logonTask(ann)
	var got struct {
		XMLName xml.Name
		Version string `xml:"version,attr"`
		Trigger struct {
			Order []struct{ XMLName xml.Name } `xml:",any"`
		} `xml:"Triggers>LogonTrigger"`
		Principal struct {
			ID        string `xml:"id,attr"`
			LogonType string
		} `xml:"Principals>Principal"`
		Actions struct {
			Context string `xml:"Context,attr"`
			Exec    struct {
				Order []struct{ XMLName xml.Name } `xml:",any"`
			} `xml:"Exec"`
		} `xml:"Actions"`
		Settings struct {
			All []struct {
				XMLName xml.Name
				Value   string `xml:",chardata"`
			} `xml:",any"`
		} `xml:"Settings"`
	}
	// Read as what it says of itself would be: the string is the text of a UTF-16 file.
	if err := xml.Unmarshal([]byte(strings.Replace(text, "UTF-16", "UTF-8", 1)), &got); err != nil {
		t.Fatal(err)
	}
	if got.XMLName.Space != taskNamespace || got.XMLName.Local != "Task" || got.Version != "1.2" {
		t.Errorf("root %v, version %s", got.XMLName, got.Version)
	}
	if got.Actions.Context != got.Principal.ID || got.Principal.ID == "" {
		t.Errorf("the action runs as %q, the principal is %q", got.Actions.Context, got.Principal.ID)
	}
	if got.Principal.LogonType != "InteractiveToken" {
		t.Errorf("logon type %s", got.Principal.LogonType)
	}
	names := func(elements []struct{ XMLName xml.Name }) (names []string) {
		for _, e := range elements {
			names = append(names, e.XMLName.Local)
		}
		return names
	}
	if diff := cmp.Diff([]string{"Enabled", "UserId"}, names(got.Trigger.Order)); diff != "" {
		t.Errorf("the trigger: %s", diff)
	}
	if diff := cmp.Diff([]string{"Command", "Arguments"}, names(got.Actions.Exec.Order)); diff != "" {
		t.Errorf("the action: %s", diff)
	}
	settings := map[string]string{}
	for _, e := range got.Settings.All {
		settings[e.XMLName.Local] = strings.TrimSpace(e.Value)
	}
	for name, want := range map[string]string{
		"MultipleInstancesPolicy": "IgnoreNew", "DisallowStartIfOnBatteries": "false", "StopIfGoingOnBatteries": "false",
		"ExecutionTimeLimit": "PT0S", "Priority": "4", "Hidden": "false", "RunOnlyIfIdle": "false",
		"RunOnlyIfNetworkAvailable": "false", "WakeToRun": "false", "AllowStartOnDemand": "true", "Enabled": "true",
	} {
		if settings[name] != want {
			t.Errorf("%s is %q, want %s", name, settings[name], want)
		}
	}
}

func TestParseTask(t *testing.T) {
	t.Parallel()
	equal := func(a, b string) bool { return a == b }
	s := taskService()
	got, err := parseTask(s.logonTask(ann))
	if err != nil {
		t.Fatal(err)
	}
	if got.Command != s.Argv[0] || got.Arguments != `run --service "a \"b\" c\\" ""` || got.Version != "1.2-rc1" || got.User != ann || got.Trigger.User != ann || !got.enabled() {
		t.Errorf("got %+v", got)
	}
	if !got.same(got, equal) {
		t.Error("it differs from itself")
	}
	for what, change := range map[string][2]string{
		"another program":   {`intermission.exe`, `other.exe`},
		"another argument":  {`--service`, `--other`},
		"another user":      {`PC\Ann`, `PC\Bob`},
		"a lower priority":  {`<Priority>4</Priority>`, ``},
		"a time limit":      {`<ExecutionTimeLimit>PT0S</ExecutionTimeLimit>`, ``},
		"only on mains":     {`<DisallowStartIfOnBatteries>false`, `<DisallowStartIfOnBatteries>true`},
		"higher privileges": {`LeastPrivilege`, `HighestAvailable`},
		"no second attempt": {`PT1M`, `PT5M`},
	} {
		other, err := parseTask(strings.ReplaceAll(s.logonTask(ann), change[0], change[1]))
		if err != nil || got.same(other, equal) {
			t.Errorf("%s is not seen: %v", what, err)
		}
	}
	// What the scheduler leaves out and adds, and what a person switches.
	for what, change := range map[string][2]string{
		"the default is left out":  {`<RunLevel>LeastPrivilege</RunLevel>`, ``},
		"it is given a URI":        {`</Version>`, `</Version><URI>\x</URI>`},
		"another version wrote it": {`1.2-rc1`, `1.3`},
		"it is switched off":       {`<Enabled>true</Enabled>`, `<Enabled>false</Enabled>`},
	} {
		other, err := parseTask(strings.ReplaceAll(s.logonTask(ann), change[0], change[1]))
		if err != nil || !got.same(other, equal) {
			t.Errorf("%s: %v, %s", what, err, cmp.Diff(got, other))
		}
		if off := what == "it is switched off"; other.enabled() == off {
			t.Errorf("%s: enabled %t", what, other.enabled())
		}
	}
	if _, err := parseTask("no task"); err == nil {
		t.Error("no task is read as one")
	}
}

func TestCheckTask(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		`C:\Program Files\i.exe`: true, `C:\100%\i.exe`: false, `C:\$(Arg0)\i.exe`: false, "C:\\a\nb": false, "C:\\\xff": false,
	} {
		if err := (Service{Argv: []string{path}}).checkTask(); (err == nil) != want {
			t.Errorf("%q: %v", path, err)
		}
	}
}
