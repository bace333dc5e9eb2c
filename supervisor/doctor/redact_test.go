package doctor

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedactsWhatLooksLikeASecret(t *testing.T) {
	t.Parallel()
	r := newRedactor(secrets{homes: []string{"/home/alice"}, user: "alice"})
	const pw = "Zx9-hidden"
	for _, line := range []string{
		"HTTPS_PROXY=http://bob:" + pw + "@proxy:3128",
		"https_proxy: bob:" + pw + "@proxy:3128",
		`{"url":"http:\/\/bob:` + pw + `@proxy"}`,
		"http%3A%2F%2Fbob%3A" + pw + "%40proxy",
		"http://bob:a/" + pw + "@x" + pw + "@proxy:1",
		`{"password":"` + pw + `"}`,
		`{"password" : "a\"b` + pw + `"}`,
		`msg="{\"password\":\"` + pw + `\"}"`,
		"password=" + pw, "password: " + pw, "OPENCODE_SERVER_PASSWORD=" + pw, "'api_key': '" + pw + "'",
		"MY_KEY=" + pw, "KEYRING=" + pw, "GITHUB_TOKEN=" + pw, "NPM_AUTH=" + pw, `Environment="MY_SECRET=` + pw + `"`,
		"Authorization: Basic b3BlbmNvZGU6" + pw, "authorization: token " + pw, `map[Authorization:[Bearer ` + pw + `]]`,
		"curl -H 'Authorization: Bearer " + pw + "'", "Bearer " + pw, "Cookie: session=" + pw, "Set-Cookie: a=" + pw + "; Path=/",
		"--password " + pw, "--api-key=" + pw, `["serve","--password","` + pw + `"]`, "GET /x?a=1&key=" + pw + "&b=2", "GET /x?auth=" + pw,
	} {
		if got := r.text(line); strings.Contains(got, pw) {
			t.Errorf("%s\nbecame %s", line, got)
		}
	}
	for _, key := range []string{
		"sk-" + "proj-" + strings.Repeat("aB3", 8), "ghp_abcdefghijklmnopqrstuvwxyz0123", "xoxb-1234567890-abc", "AKIAABCDEFGHIJKLMNOP",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "-----BEGIN RSA PRIVATE KEY-----\nMIIabcdef\nghijkl\n-----END RSA PRIVATE KEY-----",
		"-----BEGIN PRIVATE KEY-----\nMIIcut",
	} {
		if got := r.text("it is " + key + " here"); !strings.HasPrefix(got, "it is "+gone) {
			t.Errorf("%s\nbecame %s", key, got)
		}
	}
}

func TestKeepsWhatIsNone(t *testing.T) {
	t.Parallel()
	r := newRedactor(secrets{known: []string{"true", "abc", "", "opencode"}, homes: []string{"/home/alice", "/", ""}, user: "alice"})
	for _, line := range []string{
		"time=2026-11-30T23:00:00.000Z level=INFO msg=parked claims=2 jobs=1 suspended=2 took=3.1ms",
		"opencode server listening on http://127.0.0.1:49374", "true, false and abc", "malice and alices", "/srv/data/home/alice2/x", "", "\x00\xff\xfe",
		`{"id":"ses_abc","state":"pending"}`,
	} {
		if got := r.text(line); got != line {
			t.Errorf("%q\nbecame %q", line, got)
		}
	}
	for line, want := range map[string]string{
		"/home/alice/x":                 "~/x",
		"cd /home/alice; ls":            "cd ~; ls",
		"/home/alice2":                  "/home/alice2",
		"/mnt/home/alice":               "/mnt/home/(you)",
		"by Alice (alice@host)":         "by (you) ((you)@host)",
		`"dir":"%2Fhome%2Falice%2Fx"`:   `"dir":"~%2Fx"`,
		"http://proxy:3128 http://a@b/": "http://proxy:3128 http://(redacted)@b/",
	} {
		if got := r.text(line); got != want {
			t.Errorf("%q\nbecame %q\nnot    %q", line, got, want)
		}
	}
}

// TestLeavesOutTexts: also where a text is cut, escaped, or over several lines.
func TestLeavesOutTexts(t *testing.T) {
	t.Parallel()
	prompt := "Delete the \"old\" customers of Umbrella Corporation now\nand tell nobody of it, please"
	r := newRedactor(secrets{texts: []string{prompt, "Umbrella", "x"}})
	quoted, _ := json.Marshal(prompt)
	for _, s := range []string{
		prompt, string(quoted), strconv.Quote("error: " + string(quoted)), "reason=" + strconv.Quote(prompt[:40]+"…"),
		`msg=failed error="the server said: Delete the \"old\" customers of Umbr…" session=ses_1`, "Umbrella",
	} {
		got := r.text(s)
		for _, word := range []string{"Delete", "customers", "Umbr", "nobody"} {
			if strings.Contains(got, word) {
				t.Errorf("%s\nbecame %s", s, got)
			}
		}
	}
	coloured := newRedactor(secrets{texts: []string{"\x1b[31mprompt: delete\u202e Jane Doe\x1b[0m and all of hers, at once"}})
	if got := coloured.text("it died: prompt: delete Jane Doe and all of hers"); strings.Contains(got, "Jane") {
		t.Errorf("a coloured line is quoted as plain text: %s", got)
	}
	if got := r.text(`error="Delete the \"old\" customers of" session=ses_1`); got != `error="(left out)" session=ses_1` && !strings.HasPrefix(got, `error="(left out)`) {
		t.Errorf("got %s", got)
	}
}

// TestRedactProperty: whatever a secret is, wherever it stands and however it is
// encoded, it isn't found any more; and to redact twice is to redact once.
func TestRedactProperty(t *testing.T) {
	t.Parallel()
	encoders := []func(string) string{
		func(s string) string { return s },
		url.QueryEscape, url.PathEscape, html.EscapeString, strconv.Quote,
		func(s string) string { b, _ := json.Marshal(s); return string(b) },
		func(s string) string { b, _ := json.Marshal(s); return strconv.Quote(string(b)) },
		func(s string) string { return hex.EncodeToString([]byte(s)) },
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte("opencode:" + s)) },
		func(s string) string { return base64.URLEncoding.EncodeToString([]byte("u:" + s + "\n")) },
		func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte("xyz" + s)) },
		func(s string) string { return "http://user:" + url.PathEscape(s) + "@host/" },
		func(s string) string { return "http://user:" + s + "@host/" },
	}
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9 !#$%&'()*+,./:;<=>?@_~"\\^|{}é-]{8,40}`).Draw(t, "secret")
		secret = strings.TrimSpace(secret)
		if len(secret) < textLeast {
			t.Skip("too short")
		}
		noise := rapid.OneOf(rapid.String(), rapid.StringMatching(`([a-zA-Z0-9 ="':/@~()\n\\-]|password|token|http://){0,60}`))
		before, after := noise.Draw(t, "before"), noise.Draw(t, "after")
		encoded := rapid.SampledFrom(encoders).Draw(t, "encoder")(secret)
		r := newRedactor(secrets{known: []string{secret}, homes: []string{"/home/alice"}, user: "alice"})
		got := r.text(before + encoded + after)
		for _, form := range encodings(secret) {
			if strings.Contains(got, form) {
				t.Fatalf("%q is in %q, as %q", secret, got, form)
			}
		}
		if again := r.text(got); again != got {
			t.Fatalf("redacted again, %q became %q", got, again)
		}
	})
}

func FuzzRedact(f *testing.F) {
	f.Add("http://a:b@c password=\"x")
	f.Fuzz(func(t *testing.T, s string) {
		r := newRedactor(secrets{known: []string{"hunter2hunter2"}, texts: []string{"a text that was said"}, homes: []string{"/home/alice"}, user: "alice"})
		if got := r.text(s + "hunter2hunter2" + s); strings.Contains(got, "hunter2hunter2") {
			t.Errorf("%q", got)
		}
	})
}
