package restart

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"
)

func TestPlainText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{" two\r\n\tlines\u2028of\u2029a\u0085b ", "two lines of a b"},
		{"a\x1b[1;31mred\x1b[0m b", "ared b"},
		{"a\x1b]8;;http://x\x1b\\link\x1b]8;;\ab", "alinkb"},
		{"a\x1b]0;never ends", "a"},
		{"a\u009b31mb\u009dtitle\u009cc", "abc"},
		{"a\x1b(Bb\x1bcd\x1b", "abd"},
		{"a\x00\x07\x7fb", "ab"},
		{"evil\u202etxt.exe\u2066\u200b\u200e\ufeff\u00ad\U000e0041", "eviltxt.exe"},
		{"a\u200db", "ab"},
		{"\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"},
		{"bad\xff\xfeutf", "bad\ufffdutf"},
		{"rm_x && <b>y</b>\n\u202e\U0001f600", "rm_x && <b>y</b> \U0001f600"},
		{"12345678901234567890x", "1234567890123456789…"},
		{"12345678901234567890", "12345678901234567890"},
		{strings.Repeat("e\u0301", 30), strings.Repeat("e\u0301", 19) + "…"},
		{strings.Repeat("x", 1<<20), strings.Repeat("x", 19) + "…"},
		{"😀\u200d\x1b", "😀"},
		{"😀 \u200d\x1b", "😀"},
	} {
		if got := PlainText(c.in, 20); got != c.want {
			t.Errorf("%.40q: %q, want %q", c.in, got, c.want)
		}
	}
	if got := PlainText("x", 0); got != "" {
		t.Errorf("%q", got)
	}
}

func TestPlainTextIsAlwaysFitToBeShown(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		in := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"\x1b", "[", "]", "1m", "\a", "\\", "a", " ", "\u202e", "\u200d", "😀", "é", "\xff", "\u009b", "\u2028", "e\u0301", "\n"})).Draw(r, "parts"), "")
		limit := rapid.IntRange(0, 12).Draw(r, "limit")
		got := PlainText(in, limit)
		if !utf8.ValidString(got) || uniseg.GraphemeClusterCount(got) > limit || strings.TrimSpace(got) != got {
			r.Fatalf("%q gives %q", in, got)
		}
		for _, c := range got {
			if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) && c != joiner {
				r.Fatalf("%q gives %q", in, got)
			}
		}
		if again := PlainText(got, limit); again != got {
			r.Fatalf("%q, again %q", got, again)
		}
	})
}
