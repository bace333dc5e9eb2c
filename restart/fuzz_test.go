package restart

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// FuzzPlainText cleans what may stand in a session, to any length.
func FuzzPlainText(f *testing.F) {
	for _, text := range []string{
		"plain", "a\x1b[1;31mred\x1b[0m b", "a\x1b]8;;http://x\x1b\\link\x1b]8;;\ab", "\x1b]52;c;QQ==\x07", "\x1bP1$r\x1b\\", "a\u009b31mb\u009dt\u009cc", "\x9b31m\x90q\x9c",
		"evil\u202etxt.exe\u2066\u200b\ufeff\u00ad\U000e0041", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "bad\xff\xfe\xc2", "e\u0301\u0301", "\u2028\u2029\u0085\r\n\t\v\f", "\x1b\x1b[\x1b]", "\x1b(Bb\x1bcd\x1b",
		"\ue000\uf8ff\U000f0000\U0010ffff\ufffe", "\u115f\u1160\u3164\uffa0", "🇩🇪🇩", "\u0600\u06dd1",
	} {
		f.Add(text, 20)
		f.Add(strings.Repeat(text, 30), 3)
	}
	f.Fuzz(func(t *testing.T, text string, most int) {
		most %= 400
		got := PlainText(text, most)
		if !utf8.ValidString(got) || uniseg.GraphemeClusterCount(got) > max(0, most) || strings.TrimSpace(got) != got || len(got) > 3*len(text)+len("…") {
			t.Fatalf("%q gives %q", text, got)
		}
		if strings.ContainsFunc(got, func(r rune) bool {
			return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp, unicode.Co) || unicode.Is(unicode.Cf, r) && r != joiner || unicode.IsSpace(r) && r != ' '
		}) {
			t.Fatalf("%q gives %q", text, got)
		}
		if again := PlainText(got, most); again != got {
			t.Fatalf("%q gives %q, and that %q", text, got, again)
		}
	})
}
