package tray

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"intermission/restart"
	"intermission/supervisor/control"
)

// mostTitle bounds a line of the menu or of a notification, in runes.
const mostTitle = 2000

// FuzzMenu shows a supervisor in which each text is whatever a session or a server may
// say: lines of plain text, of a bounded number, and notifications without markup.
func FuzzMenu(f *testing.F) {
	for _, text := range []string{
		"Fix the login", "rm_x && <b>y</b>\n\u202e😀", "\x1b]52;c;QQ==\x07", "\x1b]0;t\x1b\\", "\u009b31m", "a\tb", "\u2066\u200b", "\xff", "__&&", "/home/ada/\u0085x", "running", "refused",
	} {
		f.Add(text, text, byte(3))
		f.Add("failed", text, byte(13))
	}
	f.Fuzz(func(t *testing.T, word, text string, n byte) {
		snap := control.Snapshot{Status: control.Status{
			Supervisor: control.SupervisorStatus{Version: text, Available: text},
			Server:     control.ServerStatus{State: word, Generation: text, Version: text, Reason: text, Available: text, LastExit: &control.Exit{Signal: text, Output: []string{text}}},
		}}
		for i := range int(n) % 14 {
			at := ago(time.Duration(i) * time.Minute)
			snap = with(snap, append(snap.Pending, control.Suspension{
				ID: text, Title: text, Directory: text, SuspendedAt: at, Cause: restart.Cause(word), State: restart.State(word), Reason: text,
				LastPrompt: &restart.Prompt{Text: text, At: at}, LastTool: &restart.Tool{Name: text, Input: text, Status: word}, WaitingFor: word,
				Children: []string{text}, Jobs: []control.Job{{Kind: word, Text: text, Status: word}, {Kind: text}, {}, {}, {}}, Resumes: i,
			})...)
			snap = working(snap, append(snap.Status.Sessions.Working, control.Working{ID: text, Title: text, Directory: text, StartedAt: at, Quiet: i%2 == 0, WaitingFor: word})...)
			if i < control.MaxOutcomes {
				snap.Outcomes = append(snap.Outcomes, control.Outcome{Seq: int64(i) + 2, At: noon, ID: text, Title: text, SuspendedAt: at, What: word, Reason: text})
			}
		}
		s := begin(Options{Version: "1.0", Home: "/home/ada", Notify: true, StallAfter: time.Minute, ConfigFault: text})
		s.sees(running())
		s.sees(snap)
		s.passes(2 * time.Minute)
		s.clicks(Action{Verb: Resume, Session: text, At: 1})
		s.do(Input{Done: &Done{Action: Action{Verb: Resume, Session: text, At: 1}, Outcome: word, Reason: text}})
		menu, _ := Model(s.state)
		checkMenu(t, menu)
		s.do(Input{Lost: &Loss{Reason: text}})
		menu, _ = Model(s.state)
		checkMenu(t, menu)
		for _, notice := range s.notices {
			for line := range strings.SplitSeq(notice, "\n") {
				checkLine(t, "a notification", line)
			}
		}
	})
}

func checkMenu(t *testing.T, m Menu) {
	t.Helper()
	checkLine(t, "the tooltip", m.Tooltip)
	checkLine(t, "the title", m.Title)
	items := 0
	var each func([]Item)
	each = func(list []Item) {
		for _, i := range list {
			items++
			checkLine(t, "the menu", i.Title)
			each(i.Items)
		}
	}
	each(m.Items)
	if items > 2000 {
		t.Errorf("the menu has %d items", items)
	}
}

func checkLine(t *testing.T, where, line string) {
	t.Helper()
	if len([]rune(line)) > mostTitle || !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
		t.Errorf("%s says %q", where, line)
	}
}
