package platform

import (
	"encoding/xml"
	"strings"
)

// launchAgentLabel is the agent's name, and the stem of its file.
func (a Autostart) launchAgentLabel() string { return "org." + app + "." + a.Name }

// launchAgent is the property list that makes launchd start the program at each
// login to the graphical session (launchd.plist(5)). Without KeepAlive: who quits
// the program has quit it.
func (a Autostart) launchAgent() []byte {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + xmlText(a.launchAgentLabel()) + `</string>
	<key>ProgramArguments</key>
	<array>
`)
	for _, arg := range a.Argv {
		b.WriteString("\t\t<string>" + xmlText(arg) + "</string>\n")
	}
	b.WriteString(`	</array>
	<key>RunAtLoad</key>
	<true/>
	<key>LimitLoadToSessionType</key>
	<string>Aqua</string>
	<key>ProcessType</key>
	<string>Interactive</string>
</dict>
</plist>
`)
	return []byte(b.String())
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// launchAgentDisabled tells whether the list has <key>Disabled</key><true/>.
func launchAgentDisabled(data []byte) bool {
	compact := strings.Join(strings.Fields(string(data)), "")
	return strings.Contains(compact, "<key>Disabled</key><true/>")
}
