package platform

import (
	"encoding/xml"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNoticeText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"markup is text", "<b>&amp;</b>", "<b>&amp;</b>"},
		{"lines", "a\r\nb\nc\rd\te", "a\nb\nc d e"},
		{"control characters", "a\x00b\x1b[31mc\u0085d\x7f", "ab[31mcd"},
		{"direction", "a\u202Eb\u2066c\u200Fd\u061Ce", "abcde"},
		{"an emoji of several characters", "👩\u200D💻", "👩\u200D💻"},
		{"no UTF-8", "a\xffb", "a\uFFFDb"},
	} {
		if got := noticeText(tt.in); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// toast is what go-toast makes around a text.
func toast(text string) string { return "<text><![CDATA[" + text + "]]></text>" }

func TestToastTextIsTextForXML(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := noticeText(rapid.OneOf(rapid.String(), rapid.StringMatching("[]<>&;!CDAT\\[$()`\"'@\n a]{0,40}")).Draw(t, "text"))
		text = strings.Map(func(r rune) rune {
			if r == 0xFFFE || r == 0xFFFF {
				return -1
			}
			return r
		}, text)
		var got struct {
			Text string `xml:",chardata"`
			Any  []struct {
				XMLName xml.Name
			} `xml:",any"`
		}
		if err := xml.Unmarshal([]byte(toast(toastText(text))), &got); err != nil {
			t.Fatalf("%q makes XML that can't be read: %v", text, err)
		}
		if got.Text != text || len(got.Any) > 0 {
			t.Fatalf("%q is read as %q, with %d elements", text, got.Text, len(got.Any))
		}
	})
}

// TestToastTextIsNothingForPowerShell: in a here-string "$" and "`" are special,
// and a quote at the start of a line, of which it knows four, ends it.
func TestToastTextIsNothingForPowerShell(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		got := toastText(rapid.OneOf(rapid.String(), rapid.Just("x\n\"@\n$(calc)`\u201c@\u201d@\u201e@")).Draw(t, "text"))
		if strings.ContainsAny(got, "$`\"\n\r@\u201c\u201d\u201e") {
			t.Fatalf("%q", got)
		}
	})
}

func TestToastTextOfCharactersThatXMLDoesNotHave(t *testing.T) {
	t.Parallel()
	if got, want := toastText("a\x01\uFFFFb"), "]]>a&#65533;&#65533;b<![CDATA["; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := toastText(""); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}
