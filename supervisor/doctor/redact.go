package doctor

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"intermission/restart"
)

// gone stands in the place of a secret, leftOut in that of a text. Each must be
// left alone by every rule below, so that to redact twice is to redact once.
const (
	gone    = "(redacted)"
	leftOut = "(left out)"
	someone = "(you)"
)

// secrets is what must not be found in a bundle.
type secrets struct {
	known []string // passwords and tokens, in whatever encoding
	texts []string // what was said in sessions
	homes []string // the home directory, by each of its names
	user  string
}

// redactor takes secrets out of text. Known ones are found wherever they stand, in
// the usual encodings; others by the form or the name that secrets have. It takes
// away too much rather than too little.
type redactor struct {
	known *strings.Replacer
	texts map[string][]string // by their first bytes
	homes []string
	user  string
}

const (
	secretLeast  = 4 // shorter ones are found by their names only
	encodedLeast = 6 // shorter ones are looked for as they are, not encoded
	textLeast    = 8 // shorter texts stand in too many places by chance
	textBegins   = 24
)

// commonWords are values that hide nothing, and that stand everywhere.
var commonWords = []string{"true", "false", "none", "null", "auto", "default", "enabled", "disabled", "basic", "bearer", "redacted", "opencode", "intermission"}

func newRedactor(s secrets) *redactor {
	r := &redactor{texts: map[string][]string{}}
	var forms []string
	for _, secret := range s.known {
		for line := range strings.Lines(secret) { // a key in PEM has many
			forms = append(forms, encodings(strings.TrimSpace(line))...)
		}
		forms = append(forms, encodings(secret)...)
	}
	// Of two that begin at the same place the longer one counts.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, gone)
	}
	r.known = strings.NewReplacer(pairs...)
	for _, text := range s.texts {
		r.addText(text)
	}
	for _, home := range s.homes {
		if len(strings.Trim(home, `/\.`)) > 0 {
			r.homes = append(r.homes, home, strings.ReplaceAll(home, `\`, `\\`), url.QueryEscape(home), url.PathEscape(home))
		}
	}
	slices.SortFunc(r.homes, func(a, b string) int { return len(b) - len(a) })
	r.homes = slices.Compact(r.homes)
	if len(s.user) > 1 && !slices.Contains([]string{"root", "you", "left", "out"}, strings.ToLower(s.user)) && !slices.Contains(commonWords, strings.ToLower(s.user)) {
		r.user = s.user
	}
	return r
}

// encodings are the forms in which a secret can stand in a file.
func encodings(secret string) (forms []string) {
	if len(secret) < secretLeast || slices.Contains(commonWords, strings.ToLower(secret)) || strings.Contains(gone+leftOut+someone, secret) {
		return nil
	}
	forms = append(forms, secret)
	if len(secret) < encodedLeast {
		return forms
	}
	inner := func(s string) string { return s[1 : len(s)-1] }
	var plain strings.Builder
	encode := json.NewEncoder(&plain)
	encode.SetEscapeHTML(false)
	_ = encode.Encode(secret) // a string always can be
	escaped, _ := json.Marshal(secret)
	for _, form := range []string{inner(strconv.Quote(secret)), inner(strings.TrimSpace(plain.String())), inner(string(escaped))} {
		forms = append(forms, form, inner(strconv.Quote(form)))
	}
	for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret), strings.ReplaceAll(url.QueryEscape(secret), "+", "%20")} {
		forms = append(forms, form, lowerEscape.ReplaceAllStringFunc(form, strings.ToLower))
	}
	forms = append(forms, html.EscapeString(secret), hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))))
	return append(forms, base64Parts(secret)...)
}

var lowerEscape = regexp.MustCompile(`%[0-9A-F]{2}`)

// base64Parts are the characters that a secret makes in base64, wherever it begins
// in what is encoded, as after "opencode:" in a header.
func base64Parts(secret string) (parts []string) {
	for before := range 3 {
		whole := append(make([]byte, before), secret...)
		first, end := (before*8+5)/6, len(whole)*8/6 // characters that hold bits of the secret alone
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			parts = append(parts, alphabet.EncodeToString(whole)[first:end])
		}
	}
	return parts
}

// addText remembers the beginning of each line of a text: it may be cut somewhere
// where it is quoted.
func (r *redactor) addText(text string) {
	for line := range strings.Lines(text) {
		r.addLine(strings.TrimSpace(line))
		r.addLine(restart.PlainText(line, 2*textBegins)) // as a reason quotes it
	}
}

// addLine remembers the beginning of a line, in each form in which it may be quoted.
func (r *redactor) addLine(line string) {
	if begin := []rune(line); len(begin) > textBegins {
		line = string(begin[:textBegins])
	}
	inner := func(s string) string { return s[1 : len(s)-1] }
	quoted := inner(strconv.Quote(line))
	escaped, _ := json.Marshal(line)
	for _, form := range []string{line, quoted, inner(strconv.Quote(quoted)), inner(string(escaped)), strings.Join(strings.Fields(line), " ")} {
		if len(form) >= textLeast && !strings.Contains(form, leftOut) && !slices.Contains(r.texts[form[:textLeast]], form) {
			r.texts[form[:textLeast]] = append(r.texts[form[:textLeast]], form)
		}
	}
}

// text is s without what must not be in it.
func (r *redactor) text(s string) string {
	for range 5 { // what is taken away may bring together what was apart
		next := r.once(s)
		if next == s {
			break
		}
		s = next
	}
	return s
}

func (r *redactor) once(s string) string {
	s = r.known.Replace(r.withoutTexts(s))
	if strings.Contains(s, "PRIVATE KEY") {
		s = keyBlock.ReplaceAllString(s, gone)
	}
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(withoutForms(line))
	}
	s = b.String()
	for _, home := range r.homes {
		s = replaceWord(s, home, "~", inName)
	}
	return replaceWord(s, r.user, someone, inWord)
}

// withoutTexts takes texts out, each with what follows it up to the end of the
// line or of the quotation.
func (r *redactor) withoutTexts(s string) string {
	if len(r.texts) == 0 {
		return s
	}
	var b strings.Builder
	kept := 0
	for i := 0; i+textLeast <= len(s); i++ {
		for _, text := range r.texts[s[i:i+textLeast]] {
			if !strings.HasPrefix(s[i:], text) {
				continue
			}
			b.WriteString(s[kept:i])
			b.WriteString(leftOut)
			i += len(text)
			for i < len(s) && s[i] != '\n' && s[i] != '"' {
				i++
			}
			kept = i
			i--
			break
		}
	}
	return b.String() + s[kept:]
}

var keyBlock = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)

// secretName is how what holds a secret is called.
const secretName = `(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|[_-]key|[_-]auth|[_-]pass)`

// form is a form that secrets have. It is looked for in lines with one of the signs only.
type form struct {
	signs []string // in lower case
	find  *regexp.Regexp
	with  string
}

// after is what stands between the name of a secret and its value.
const after = `[\w.-]*\\*["']?[ \t]*[:=][ \t]*`

var forms = []form{
	// The user and the password of an address, the password unescaped, too.
	{[]string{"//", `\/\/`}, regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*:(?:\\?/){2})[^\s"'<>]*@`), "${1}" + gone + "@"},
	{[]string{"%2f%2f"}, regexp.MustCompile(`(?i)(%3A%2F%2F)[^\s"'<>&]*%40`), "${1}" + gone + "%40"},
	{[]string{"_proxy"}, regexp.MustCompile(`(?i)(_proxy\\*["']?[ \t]*[:=][ \t]*\\*["']?)[^\s"'/]*@`), "${1}" + gone + "@"},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)(authorization\\*["']?[ \t]*[:=][ \t]*\[?\\*["']?)[^\r\n"'\]\\]+`), "${1}" + gone},
	{[]string{"basic", "bearer"}, regexp.MustCompile(`(?i)\b((?:basic|bearer)(?:[ \t]+|%20))[A-Za-z0-9+/=_.~-]{8,}`), "${1}" + gone},
	{[]string{"cookie"}, regexp.MustCompile(`(?i)(cookie\\*["']?[ \t]*[:=][ \t]*\[?\\*["']?)[^\r\n"'\]\\]+`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(` + secretName + after + `")(?:[^"\\]|\\.)*`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(` + secretName + after + `\\+")[^"\\]*`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(` + secretName + after + `')[^']*`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(` + secretName + after + `)[^\s,;&"'}\]\\]+`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(-` + secretName + `[\w-]*\\*["']?[, \t]+\\*["']?)[^\s,;"'\\]+`), "${1}" + gone},
	{named, regexp.MustCompile(`(?i)(--?(?:password|token|secret)\\*["']?[, \t]+\\*["']?)[^\s,;"'\\]+`), "${1}" + gone},
	{[]string{"key", "auth"}, regexp.MustCompile(`(\b[A-Z0-9_]*(?:KEY|AUTH)[A-Z0-9_]*\\*["']?[ \t]*[:=][ \t]*\\*["']?)[^\s"'\\]+`), "${1}" + gone},
	{[]string{"key=", "auth=", "code=", "sig"}, regexp.MustCompile(`(?i)([?&](?:key|auth|code|sig|signature)=)[^&\s"'\\]+`), "${1}" + gone},
	{[]string{"sk-", "gh", "glpat-", "xox", "akia", "aiza", "eyj", "npm_", "hf_"}, regexp.MustCompile(
		`\b(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|npm_\w{30,}|hf_\w{20,})`), gone},
}

var named = []string{"pass", "secret", "token", "cred", "key", "auth"}

func withoutForms(line string) string {
	lower := strings.ToLower(line)
	for _, f := range forms {
		if slices.ContainsFunc(f.signs, func(sign string) bool { return strings.Contains(lower, sign) }) {
			line = f.find.ReplaceAllString(line, f.with)
		}
	}
	return line
}

// replaceWord replaces word, in whatever case, where it doesn't go on on either side.
func replaceWord(s, word, with string, goesOn func(byte) bool) string {
	if word == "" || len(s) < len(word) {
		return s
	}
	lower, word := lowerASCII(s), lowerASCII(word)
	var b strings.Builder
	kept := 0
	for from := 0; ; {
		at := strings.Index(lower[from:], word)
		if at < 0 {
			return b.String() + s[kept:]
		}
		at += from
		end := at + len(word)
		from = at + 1
		if at > 0 && goesOn(s[at-1]) || end < len(s) && goesOn(s[end]) {
			continue
		}
		b.WriteString(s[kept:at])
		b.WriteString(with)
		kept, from = end, end
	}
}

// lowerASCII keeps the place of every byte.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

// inName tells whether the name of a file goes on.
func inName(c byte) bool { return inWord(c) || c == '_' || c == '-' }
