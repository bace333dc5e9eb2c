package platform

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// logonTask is the definition of a task of Windows' Task Scheduler (schema 1.2) that
// starts the program when the user logs on, and never again in that session while
// it runs. user is "DOMAIN\name" or a SID.
//
// The scheduler's own defaults are for chores: it would end the task after three days,
// when the machine goes on battery or is in use again, and run it below the normal
// priority (7), which the server and its tools would inherit; 4 to 6 are normal, and 4
// gives memory and disk the normal priority too. It never ends the task by force when
// we don't ask for it: its way of ending one is to kill it.
func (s Service) logonTask(user string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="` + taskNamespace + `">
  <RegistrationInfo>
    <Version>` + xmlText(s.Version) + `</Version>
    <Description>` + xmlText(s.Title+": "+s.Comment) + `</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>` + xmlText(user) + `</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>` + xmlText(user) + `</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <AllowHardTerminate>true</AllowHardTerminate>
    <StartWhenAvailable>true</StartWhenAvailable>
    <RunOnlyIfNetworkAvailable>false</RunOnlyIfNetworkAvailable>
    <IdleSettings>
      <StopOnIdleEnd>false</StopOnIdleEnd>
      <RestartOnIdle>false</RestartOnIdle>
    </IdleSettings>
    <AllowStartOnDemand>true</AllowStartOnDemand>
    <Enabled>true</Enabled>
    <Hidden>false</Hidden>
    <RunOnlyIfIdle>false</RunOnlyIfIdle>
    <WakeToRun>false</WakeToRun>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Priority>4</Priority>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>255</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>` + xmlText(s.Argv[0]) + `</Command>
`)
	if len(s.Argv) > 1 {
		b.WriteString("      <Arguments>" + xmlText(commandArguments(s.Argv[1:])) + "</Arguments>\n")
	}
	b.WriteString(`    </Exec>
  </Actions>
</Task>
`)
	return b.String()
}

const taskNamespace = "http://schemas.microsoft.com/windows/2004/02/mit/task"

// checkTask refuses what the scheduler would read as something else: it expands
// variables in command and arguments, and $(Arg0) of its own.
func (s Service) checkTask() error {
	for _, arg := range s.Argv {
		if strings.Contains(arg, "%") || strings.Contains(arg, "$(") {
			return fmt.Errorf("a logon task can't start %q: Windows would expand it; move the program to another directory", arg)
		}
		if !utf8.ValidString(arg) || strings.ContainsFunc(arg, func(r rune) bool { return r < ' ' }) {
			return fmt.Errorf("a logon task can't start %q", arg)
		}
	}
	return nil
}

// commandArguments words the arguments after the program as CommandLineToArgvW takes them apart.
func commandArguments(argv []string) string {
	return strings.TrimPrefix(runCommand(append([]string{""}, argv...)), `"" `)
}

// task is what of a definition counts for us: the scheduler rewrites the text of
// what it is given, and adds to it.
type task struct {
	Version string `xml:"RegistrationInfo>Version"`
	Trigger struct {
		User    string `xml:"UserId"`
		Enabled string `xml:"Enabled"`
	} `xml:"Triggers>LogonTrigger"`
	User      string       `xml:"Principals>Principal>UserId"`
	RunLevel  string       `xml:"Principals>Principal>RunLevel"`
	Settings  taskSettings `xml:"Settings"`
	Command   string       `xml:"Actions>Exec>Command"`
	Arguments string       `xml:"Actions>Exec>Arguments"`
}

type taskSettings struct {
	Policy    string `xml:"MultipleInstancesPolicy"`
	Battery   string `xml:"DisallowStartIfOnBatteries"`
	OnBattery string `xml:"StopIfGoingOnBatteries"`
	Enabled   string `xml:"Enabled"`
	Limit     string `xml:"ExecutionTimeLimit"`
	Priority  string `xml:"Priority"`
	Interval  string `xml:"RestartOnFailure>Interval"`
}

// parseTask reads a definition, ours or as the scheduler gives it back.
func parseTask(text string) (task, error) {
	var t task
	d := xml.NewDecoder(strings.NewReader(text))
	// It says UTF-16, and is a string already.
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	if err := d.Decode(&t); err != nil {
		return t, fmt.Errorf("cannot read the definition of the task: %w", err)
	}
	// What is the default may be left out by who writes it down.
	for field, value := range map[*string]string{
		&t.Trigger.Enabled: "true", &t.Settings.Enabled: "true", &t.RunLevel: "LeastPrivilege",
		&t.Settings.Policy: "IgnoreNew", &t.Settings.Battery: "true", &t.Settings.OnBattery: "true",
		&t.Settings.Limit: "PT72H", &t.Settings.Priority: "7",
	} {
		if *field == "" {
			*field = value
		}
	}
	return t, nil
}

// enabled tells whether nobody has switched the task off, or its trigger.
func (t task) enabled() bool { return t.Settings.Enabled == "true" && t.Trigger.Enabled == "true" }

// same tells whether both do the same. Users are compared by same too, for a name and
// a SID may mean one account. Whether a task is switched off is the person's affair, and
// which version has written it says nothing of what it does.
func (t task) same(other task, user func(a, b string) bool) bool {
	if !user(t.User, other.User) || !user(t.Trigger.User, other.Trigger.User) {
		return false
	}
	for _, x := range []*task{&t, &other} {
		x.User, x.Trigger.User, x.Trigger.Enabled, x.Settings.Enabled, x.Version = "", "", "", "", ""
	}
	return t == other
}
