package platform

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// toastText escapes a text for go-toast 1.1, which puts it as it is between
// <![CDATA[ and ]]>, and where the Windows Runtime can't be had, the whole into a
// here-string of PowerShell, where $(…) would be run. So the text leaves the CDATA
// section, is written in letters, digits and numeric entities alone, and enters a
// section again: neither XML nor PowerShell finds anything of its own in it.
func toastText(s string) string {
	if s == "" {
		return "" // go-toast leaves the element out
	}
	var b strings.Builder
	b.WriteString("]]>")
	for _, r := range s {
		switch {
		case r == ' ', '0' <= r && r <= '9', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			b.WriteRune(r)
		case r < ' ' && r != '\n', r == 0xFFFE, r == 0xFFFF: // not allowed in XML 1.0, not even as an entity
			b.WriteString(fmt.Sprintf("&#%d;", utf8.RuneError))
		default:
			fmt.Fprintf(&b, "&#%d;", r)
		}
	}
	b.WriteString("<![CDATA[")
	return b.String()
}
