package restart

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// PlainText makes text of a session fit to be shown: one line, trimmed, valid
// UTF-8, without terminal escapes, control, bidirectional and invisible
// characters, and cut to at most max graphemes, the last of which is then "…".
// Menu mnemonics and markup are the business of who shows it.
func PlainText(s string, max int) string {
	if max <= 0 {
		return ""
	}
	// What is far beyond the cut isn't looked at: a prompt may hold megabytes.
	if limit := 64 * max; len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit] + "…"
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	var b strings.Builder
	space := false // a space is due before the next character
	var last rune
	for s != "" {
		if n := escapeLength(s); n > 0 {
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch {
		case unicode.IsSpace(r) || r == '\u2028' || r == '\u2029':
			space = b.Len() > 0
		case invisible(r) && !(r == joiner && last > joiner && s != ""):
		default:
			if space {
				b.WriteByte(' ')
				space = false
			}
			b.WriteRune(r)
			last = r
		}
	}
	return cut(strings.TrimRight(b.String(), " "+string(joiner)), max) // a joiner is one only between two
}

// joiner makes one emoji of several. Elsewhere it is invisible.
const joiner = '\u200d'

// invisible says that r has no place in a line of text: controls, and all format
// characters (Cf: bidirectional, zero-width, tags).
func invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) || r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\uffa0'
}

// escapeLength gives the length of the terminal escape (ECMA-48) that s begins with, 0 for none.
func escapeLength(s string) int {
	var rest string
	var kind byte
	switch {
	case len(s) >= 2 && s[0] == 0x1b:
		kind, rest = s[1], s[2:]
	case len(s) >= 2 && s[0] == 0xc2 && s[1] >= 0x80 && s[1] <= 0x9f && s[1] != 0x85: // the same as one C1 character
		kind, rest = s[1]-0x40, s[2:]
	default:
		return 0
	}
	start := len(s) - len(rest)
	switch kind {
	case '[': // CSI: parameters, then a final byte
		i := 0
		for i < len(rest) && rest[i] >= 0x20 && rest[i] <= 0x3f {
			i++
		}
		if i < len(rest) && rest[i] >= 0x40 && rest[i] <= 0x7e {
			i++
		}
		return start + i
	case ']', 'P', 'X', '^', '_': // OSC, DCS, SOS, PM, APC: to the string terminator
		return start + stringLength(rest)
	}
	switch {
	case kind >= 0x20 && kind <= 0x2f: // intermediates, then a final byte
		return start + min(len(rest), len(rest)-len(strings.TrimLeft(rest, " !\"#$%&'()*+,-./"))+1)
	case kind > 0x2f && kind <= 0x7e:
		return start
	}
	return 1 // a lone escape
}

// stringLength gives the length of a control string with its terminator: all of it when it has none.
func stringLength(s string) int {
	end, after := len(s), len(s)
	for _, terminator := range []string{"\a", "\x1b\\", "\u009c"} {
		if i := strings.Index(s[:end], terminator); i >= 0 {
			end, after = i, i+len(terminator)
		}
	}
	return after
}

// cut shortens s to max graphemes.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	n, kept := 0, 0 // graphemes, and bytes of the first max-1
	for rest, state := s, -1; rest != ""; {
		var g string
		g, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		n++
		if n < max {
			kept += len(g)
		}
		if n > max {
			return strings.TrimRight(s[:kept], " ") + "…"
		}
	}
	return s
}
