package doctor

import (
	"fmt"
	"strings"
)

// The terminal's colours, by what they mean here, as package control has them.
var colours = map[State]string{OK: "32", Warning: "33", Failed: "31", Skipped: "2"}

// Text renders the report for a terminal, in colour or plain. What was found is
// plain text already, whoever wrote it.
func (r Report) Text(colour bool) string {
	var b strings.Builder
	count := map[State]int{}
	wide := 0
	for _, c := range r.Checks {
		count[c.State]++
		wide = max(wide, len(c.Name))
	}
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "%s%s  %-*s  %s\n", paint(colour, c.State), strings.Repeat(" ", len(Skipped)-len(c.State)), wide, c.Name, c.Detail)
		if c.Act != "" {
			fmt.Fprintf(&b, "%*s→ %s\n", len(Skipped)+wide+4, "", c.Act)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d with a warning, %d failed, %d skipped\n", count[OK], count[Warning], count[Failed], count[Skipped])
	return b.String()
}

func paint(colour bool, s State) string {
	if !colour {
		return string(s)
	}
	return "\x1b[" + colours[s] + "m" + string(s) + "\x1b[0m"
}
