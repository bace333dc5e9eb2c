package opencode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"intermission/restart"
)

// mostSaid bounds, in bytes, an error that quotes what others wrote: each of its
// graphemes may have some combining characters.
const mostSaid = 64 * maxSaid

// shownError checks the text of an error: short, fit for a terminal, without the password.
func shownError(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	said := err.Error()
	shownText(t, said)
	for _, secret := range []string{testPassword, base64.StdEncoding.EncodeToString([]byte(Username + ":" + testPassword))} {
		if strings.Contains(said, secret) {
			t.Errorf("the password is in %q", said)
		}
	}
}

func shownText(t *testing.T, said string) {
	t.Helper()
	if len(said) > mostSaid {
		t.Errorf("an error of %d bytes: %.200q", len(said), said)
	}
	if !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
		t.Errorf("not fit to be shown: %q", said)
	}
}

// recorded gives the frames of a recording.
func recorded(f testing.TB, file string) (frames [][]byte) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		f.Fatal(err)
	}
	for frame := range bytes.SplitSeq(text, []byte("\n\n")) {
		if len(frame) > 0 {
			frames = append(frames, frame)
		}
	}
	return frames
}

// FuzzRegistration reads what programs say of themselves: a registration file, the
// answer to --version, the line of v1 that tells its address.
func FuzzRegistration(f *testing.F) {
	good := register(Incarnation{ID: "3f1c0a52-77aa-4b0e-8d8e-5d4f4c0a6a11", Version: "2.2.0", URL: "http://127.0.0.1:49374", PID: 17519, Password: testPassword})
	for _, text := range []string{
		good, good[:40], strings.Replace(good, "//", "//u:p@", 1), strings.Replace(good, "http:", "https:", 1), strings.Replace(good, "17519", "-1", 1),
		`{"id":"a","ID":"b","pid":2,"password":"x","url":"http://[::1]:80/"}`, `{"pid":1e3,"id":"a","password":"b","url":"http://x"}`, "null", "[]", "",
		`{"url":"http://\u001b]0;x\u0007/"}`, "a notice\nv1.18.33\n", "2.2.0", "0.0.0-dev-202611301200", "opencode 1.18.33 (x)", "1.18.33\x1b]0;t\a",
		"opencode server listening on http://127.0.0.1:4096", "opencode server listening on http://%zz",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		inc, err := parseRegistration(text)
		if err == nil {
			at, bad := url.Parse(inc.URL)
			if bad != nil || at.Scheme != "http" || at.Host == "" || at.User != nil || inc.PID <= 1 || inc.ID == "" || inc.Password == "" || inc.Generation != V2 {
				t.Fatalf("believed: %+v", inc)
			}
			said := inc.String() // the password may be a word of it
			if len(inc.Password) > 40 && strings.Contains(said, inc.Password) && !strings.Contains(inc.Version+inc.URL, inc.Password) {
				t.Errorf("the password is in %q", said)
			}
			again, err := json.Marshal(inc)
			if err != nil {
				t.Fatal(err)
			}
			if back, err := parseRegistration(again); err != nil || back != inc {
				t.Errorf("written and read again, %+v became %+v, %v", inc, back, err)
			}
		} else if inc != (Incarnation{}) {
			t.Errorf("of what can't be read there is %+v", inc)
		}

		version := versionIn(string(text))
		path, err := DatabasePath(func(name string) string { return map[string]string{"HOME": "/home/u"}[name] }, version)
		if err != nil || filepath.Dir(path) != "/home/u/.local/share/opencode" || strings.ContainsFunc(filepath.Base(path), unicode.IsControl) {
			t.Errorf("version %q has the database %q, %v", version, path, err)
		}
		for _, name := range registrationNames(channelOf(version)) {
			if filepath.Base(name) != name || !strings.HasPrefix(name, "service") {
				t.Errorf("version %q has the registration %q", version, name)
			}
		}
		shownText(t, (&UnsupportedVersionError{Program: "/bin/opencode", Version: version}).Error())
	})
}

// kinds are those that decode may tell of.
var kinds = []restart.EventKind{
	restart.EventStarted, restart.EventSucceeded, restart.EventFailed, restart.EventInterrupted, restart.EventShutdown,
	restart.EventDeleted, restart.EventArchived, restart.EventProgress, restart.EventAsked,
}

// FuzzEvents reads an event stream as either generation sends it.
func FuzzEvents(f *testing.F) {
	for generation, file := range map[bool]string{true: "v1-turns.txt", false: "v2-turns.txt"} {
		frames := recorded(f, file)
		for n := 0; n < len(frames); n += 1 + len(frames)/40 {
			f.Add(generation, append(slices.Clone(frames[n]), '\n', '\n'))
		}
		f.Add(generation, bytes.Join(frames[:min(8, len(frames))], []byte("\n\n")))
	}
	for _, text := range []string{
		": heartbeat\n\ndata:{}\r\n\r\ndata: a\ndata: b\n\n", "data: [[[[[[", "\ufeffdata: {}\n\n",
		`data: {"type":"session.execution.started","created":1e300,"data":{"sessionID":"s"}}` + "\n\n",
		`data: {"type":"session.execution.failed","created":-1,"data":{"sessionID":"s","error":{"message":"\u001b]52;c;AA\u0007"}}}` + "\n\n",
		`data: {"directory":"/d","payload":{"type":"session.error","properties":{"sessionID":"s","error":{"name":"E","data":{"message":"m"}}}}}` + "\n\n" +
			`data: {"directory":"/d","payload":{"type":"session.idle","properties":{"sessionID":"s"}}}` + "\n\n",
	} {
		f.Add(true, []byte(text))
		f.Add(false, []byte(text))
	}
	f.Fuzz(func(t *testing.T, isV1 bool, stream []byte) {
		var frames, bytewise [][]byte
		_ = readFrames(bytes.NewReader(stream), func() {}, func(data []byte) { frames = append(frames, bytes.Clone(data)) })
		_ = readFrames(iotest.OneByteReader(bytes.NewReader(stream)), func() {}, func(data []byte) { bytewise = append(bytewise, bytes.Clone(data)) })
		if !slices.EqualFunc(frames, bytewise, bytes.Equal) {
			t.Fatalf("byte by byte it is %q, else %q", bytewise, frames)
		}
		if len(frames) > bytes.Count(stream, []byte("\n")) {
			t.Fatalf("%d frames of %q", len(frames), stream)
		}
		for _, frame := range frames {
			if len(frame) > len(stream) || bytes.IndexByte(frame, '\r') >= 0 && bytes.Count(stream, []byte("\r")) == 0 {
				t.Fatalf("the frame %q of %q", frame, stream)
			}
		}
		var api api = &v2{}
		if isV1 {
			api = newV1(nil)
		}
		told := 0
		for _, frame := range frames {
			before := told
			api.decode(frame, func(e restart.Event) {
				told++
				if e.Session == "" || len(e.Session) > maxID || !slices.Contains(kinds, e.Kind) || e.At < 0 || e.At > maxInstant || e.Directory == "global" && isV1 {
					t.Errorf("%q tells %+v", frame, e)
				}
				if e.Kind != restart.EventFailed && e.Err != "" {
					t.Errorf("an error of what hasn't failed: %+v", e)
				}
			})
			if told > before+1 {
				t.Errorf("%q tells of several things", frame)
			}
		}
		if v, ok := api.(*v1); ok && (len(v.dirs) > len(frames) || len(v.busy) > len(frames) || len(v.failed) > len(frames)) {
			t.Errorf("more is kept than was told")
		}
	})
}

// FuzzDatabase fills the columns that hold text of others, in a session of each kind of
// database. A second session, which is well, must not suffer by it.
func FuzzDatabase(f *testing.F) {
	const assistant = `{"content":[{"type":"text","text":"t"},{"type":"tool","id":"c","name":"bash","state":{"status":"running","input":{"command":"ls"}}}]}`
	for _, c := range [][3]string{
		{`{"text":"do it"}`, assistant, `{"id":"n","notificationID":"n","status":"running","recovery":{"kind":"subagent","parentSessionID":"s","childSessionID":"c","agent":"a","description":"d"}}`},
		{`{"role":"user","agent":"build","model":{"providerID":"p","modelID":"m"}}`, `{"type":"tool","tool":"bash","state":{"status":"error","input":{"command":"ls"},"metadata":{"interrupted":true}}}`, `{"reason":"shutdown"}`},
		{`{"role":"assistant","time":{"completed":1},"error":{"name":"MessageAbortedError"}}`, `{"type":"text","text":"a\nb","synthetic":true}`, `{"recovery":{"kind":"shell","sessionID":"well","command":"\u001b[2J"}}`},
		{`{`, `[]`, `null`}, {"", "7", `"x"`}, {`{"text":7}`, `{"content":[{"type":"tool","name":{},"state":[]}]}`, `{"status":1}`},
		{"\xff", `{"content":{"a":{"type":"tool","name":"\u0000"}}}`, `{"recovery":[]}`},
	} {
		f.Add(c[0], c[1], c[2], int64(1790000000000), false)
		f.Add(c[0], c[1], c[2], int64(-1), true)
	}
	type bed struct {
		server *server
		db     *Database
	}
	var beds []bed
	for _, kind := range []string{KindV1, KindEarly, KindClaims} {
		gen := V2
		if kind == KindV1 {
			gen = V1
		}
		s := newServer(f, kind)
		s.exec("PRAGMA synchronous = OFF")
		s.session("ill", "")
		s.session("well", "")
		if kind == KindV1 {
			s.messageV1("well", "msg_w", 5, `{"role":"user"}`, `{"type":"text","text":"well"}`)
		} else {
			s.message("well", "msg_w", "user", `{"text":"well"}`, 5)
			s.event("well", "session.execution.started.1", `{}`, 5)
		}
		beds = append(beds, bed{s, s.open(gen)})
	}
	f.Fuzz(func(t *testing.T, first, second, third string, at int64, blob bool) {
		value := func(text string) any {
			if blob {
				return []byte(text)
			}
			return text
		}
		for _, b := range beds {
			s := &server{t, b.server.path, b.server.kind, b.server.db}
			s.exec("BEGIN")
			if s.kind == KindV1 {
				s.exec("DELETE FROM message WHERE session_id = 'ill'")
				s.exec("DELETE FROM part WHERE session_id = 'ill'")
				s.exec("UPDATE session SET title = ?, directory = ?, permission = ? WHERE id = 'ill'", first, second, third)
				s.exec("INSERT INTO message (id, session_id, time_created, time_updated, data) VALUES ('msg_i', 'ill', ?, 4, ?)", at, value(first))
				s.exec("INSERT INTO part (id, message_id, session_id, time_created, time_updated, data) VALUES ('prt_1', 'msg_i', 'ill', 4, 4, ?), ('prt_2', 'msg_i', 'ill', 4, 4, ?)", value(second), value(third))
			} else {
				s.exec("DELETE FROM session_message WHERE session_id = 'ill'")
				s.exec("DELETE FROM event WHERE aggregate_id = 'ill'")
				s.exec("UPDATE "+s.table()+" SET title = ?, directory = ?, permission = ?, model = ?, agent = ?, time_suspended = iif(? < 0, ?, NULL) WHERE id = 'ill'", first, second, third, value(first), value(second), at, value(third))
				s.exec("INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data) VALUES ('msg_1', 'ill', 'user', 1, ?, 4, ?), ('msg_2', 'ill', 'assistant', 2, 4, 4, ?)", at, value(first), value(second))
				s.exec("INSERT OR IGNORE INTO event_sequence (aggregate_id, seq) VALUES ('ill', 0)")
				s.exec("INSERT INTO event (id, aggregate_id, seq, created, type, data) VALUES ('evt_i', 'ill', 1, ?, 'session.execution.interrupted.1', ?)", at, value(third))
				if s.kind == KindClaims {
					s.exec("DELETE FROM kv")
					s.exec("INSERT INTO kv (key, value, time_created, time_updated) VALUES ('job.background/n', ?, 3, 4)", value(third))
				}
			}
			s.exec("COMMIT")
			checkDatabase(t, b.db, s.kind, third)
		}
	})
}

func checkDatabase(t *testing.T, d *Database, kind, job string) {
	t.Helper()
	both := []string{"ill", "well"}
	var unknown *UnknownShapeError
	ctx := t.Context()

	sweep, err := d.Sweep(ctx)
	shownError(t, err)
	switch {
	case err != nil && (kind == KindV1 || !errors.As(err, &unknown)):
		t.Errorf("%s: sweep: %v", kind, err)
	case err == nil && kind == KindClaims:
		if len(sweep.Jobs) != 1 || !json.Valid(sweep.Jobs[0].Raw) || !json.Valid([]byte(job)) {
			t.Errorf("the job %q is %+v", job, sweep.Jobs)
		}
	}

	fates, err := d.Fates(ctx, both)
	shownError(t, err)
	if err != nil || fates["well"].Outcome != restart.OutcomeInFlight || fates["ill"].Outcome == restart.OutcomeGone {
		t.Errorf("%s: fates %v, %v", kind, fates, err)
	}

	descriptions, err := d.Describe(ctx, both)
	shownError(t, err)
	if err != nil {
		t.Fatalf("%s: describe: %v", kind, err)
	}
	if w := descriptions["well"]; w.Title != "Title of well" || w.LastPrompt == nil || w.LastPrompt.Text != "well" {
		t.Errorf("%s: what is well is described as %+v", kind, w)
	}
	ill := descriptions["ill"]
	const most = maxText * utf8.UTFMax
	if len(ill.Title) > most || ill.LastPrompt != nil && len(ill.LastPrompt.Text) > most+8 || ill.LastTool != nil && len(ill.LastTool.Input) > 3*most {
		t.Errorf("%s: too much: %d bytes of title", kind, len(ill.Title))
	}
	if ill.LastTool != nil && !slices.Contains([]string{"running", "completed", "error"}, ill.LastTool.Status) {
		t.Errorf("%s: the tool's status is %q", kind, ill.LastTool.Status)
	}
	if ill.Model != "" && !json.Valid([]byte(ill.Model)) {
		t.Errorf("%s: the model %q", kind, ill.Model)
	}
}
