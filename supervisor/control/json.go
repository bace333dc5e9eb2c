package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// WriteJSON writes v as one line of JSON that a terminal may be sent: encoding/json
// escapes the control characters of ASCII, and leaves those above, by which a terminal is
// steered too, and those that turn the direction of writing. Escaped, they are what they
// were to every reader of JSON.
func WriteJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, EscapeUnseen(b.String()))
	return err
}

// EscapeUnseen escapes, in a line of JSON, what can't be seen: such stands in strings only.
func EscapeUnseen(text string) string {
	if strings.IndexFunc(text, unseen) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !unseen(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func unseen(r rune) bool { return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf) }

// Message is what an error says, fit for a terminal: some have several lines, and any
// may quote what a session or a server said.
func Message(e *Error) string {
	var lines []string
	for line := range strings.Lines(e.Message) {
		if line = clean(line, maxLogLine); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
