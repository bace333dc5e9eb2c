package platform

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLaunchAgent(t *testing.T) {
	t.Parallel()
	a := Autostart{Name: "intermission-tray", Argv: []string{"/Applications/A & B.app/Contents/MacOS/intermission", "tray", `<"'>`}}
	got := a.launchAgent()
	want, err := os.ReadFile(filepath.Join("testdata", "launchagent.plist"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var read struct {
		Arguments []string `xml:"dict>array>string"`
	}
	if err := xml.Unmarshal(got, &read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Argv, read.Arguments); diff != "" {
		t.Errorf("the arguments are read back otherwise:\n%s", diff)
	}
}

func TestLaunchAgentDisabled(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]bool{
		string(Autostart{Name: "x", Argv: []string{"/i"}}.launchAgent()): false,
		"<dict>\n\t<key>Disabled</key>\n\t<true/>\n</dict>":              true,
		"<dict><key>Disabled</key><true /></dict>":                       true,
		"<dict><key>Disabled</key><false/></dict>":                       false,
		"<dict><key>RunAtLoad</key><true/></dict>":                       false,
	} {
		if got := launchAgentDisabled([]byte(list)); got != want {
			t.Errorf("%s: %t", list, got)
		}
	}
}
