package packaging

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// commandLine has one of each kind of thing that a command line can have.
type commandLine struct {
	JSON bool `name:"json" help:"Print JSON, errors too."`

	Show struct {
		ID string `arg:"" help:"A session id."`
		At *int64 `placeholder:"TIME" help:"The suspension that was seen."`
	} `cmd:"" help:"Show everything about one suspension."`
	Service struct {
		Install struct {
			Linger bool   `help:"From boot on, too."`
			As     string `enum:"service,task" default:"task" short:"a" help:"How."`
		} `cmd:"" help:"Install it."`
		Stop struct{} `cmd:"" help:".it begins with what roff takes for a macro, and has \\fBa backslash."`
	} `cmd:"" help:"The background service."`
	Completion struct {
		Shell string `arg:"" optional:"" enum:"bash,zsh," default:"" help:"A shell."`
	} `cmd:"" help:"It isn't 'quoted'."`
	Secret struct{} `cmd:"" hidden:"" help:"Not for people."`
}

func model(t *testing.T) *kong.Application {
	t.Helper()
	k, err := kong.New(&commandLine{}, kong.Name("intermission"), kong.Description("Keeps it running."))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

// tool finds a program that a test is made of; under CI it must be there.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing; Debian: apt-get install %s", name, debian)
		}
		t.Skipf("%s is missing; Debian: apt-get install %s", name, debian)
	}
	return path
}

func TestMan(t *testing.T) {
	t.Parallel()
	text := Man(model(t), "1.2.3~rc1", "2026-11-30")
	for _, want := range []string{
		`.TH INTERMISSION 1 2026-11-30 "Intermission 1.2.3\(tirc1" "User Commands"`,
		"\\fBshow\\fR \\fIID\\fR\n", "\\fB\\-\\-at\\fR=\\fITIME\\fR\n", "\\fBservice install\\fR\n",
		"\\fB\\-a\\fR, \\fB\\-\\-as\\fR=", "\n\\&.it begins", `has \efBa backslash`, "\\fBcompletion\\fR [\\fISHELL\\fR]\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Error("a hidden command is shown")
	}
}

func TestManIsClean(t *testing.T) {
	t.Parallel()
	text := Man(model(t), "1.2.3", "2026-11-30")
	for _, c := range [][]string{
		{tool(t, "man", "man-db"), "--warnings", "--encoding=UTF-8", "--local-file", "-"},
		{tool(t, "mandoc", "mandoc"), "-T", "lint", "-W", "warning"},
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANWIDTH=80")
		cmd.Stdin = strings.NewReader(text)
		var complaints strings.Builder
		cmd.Stdout, cmd.Stderr = io.Discard, &complaints
		if strings.HasSuffix(c[0], "mandoc") {
			cmd.Stdout = &complaints // its complaints are its output
		}
		if err := cmd.Run(); err != nil || complaints.Len() > 0 {
			t.Errorf("%s: %v\n%s", c[0], err, &complaints)
		}
	}
}
