package control

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	soon := now.Add(8 * time.Second)
	plain, colour := Text{Now: now}, Text{Now: now, Color: true}

	running := Status{
		Supervisor: SupervisorStatus{PID: 41, Version: "0.1.0", Since: ago(3 * time.Hour)},
		Server: ServerStatus{
			State: "running", Desired: "running", Generation: "v2", Version: "2.2.0", PID: 42,
			URL: "http://127.0.0.1:49374", RSSBytes: 200 << 20, Adopted: true, Restarts: 2,
			LastExit: &Exit{Code: 1, At: ago(time.Hour)},
		},
		Sessions: SessionStatus{Active: []string{"ses_a", "ses_b", "ses_c"}, Pending: 3, Working: []Working{
			{ID: "ses_a", Title: "Fix the login page", StartedAt: ago(12*time.Minute + 40*time.Second).UnixMilli(), ProgressAt: ago(5 * time.Minute).UnixMilli(), Quiet: true},
			{ID: "ses_b", StartedAt: ago(9 * time.Second).UnixMilli(), ProgressAt: ago(5 * time.Minute).UnixMilli()},
			{ID: "ses_c", StartedAt: ago(time.Hour).UnixMilli(), ProgressAt: ago(59 * time.Minute).UnixMilli(), Quiet: true, WaitingFor: "permission"},
		}},
	}
	upgradable := Status{
		Supervisor: SupervisorStatus{PID: 41, Version: "0.1.0", Since: ago(3 * time.Hour), Available: "0.2.0"},
		Server:     ServerStatus{State: "running", Desired: "running", Generation: "v1", Version: "1.18.33", PID: 42, Available: "1.18.34"},
	}
	held := upgradable
	held.Supervisor.Waits = "config.toml, line 3: no such key; mend that"
	failing := Status{
		Supervisor: running.Supervisor,
		Server: ServerStatus{
			State: "backoff", Desired: "running", Restarts: 1, Reason: "it exited before it was ready: the port is taken",
			LastExit:    &Exit{Signal: "SIGKILL", At: ago(2 * time.Second), Output: []string{"\x1b[31mError\x1b[0m: port 4096", "in use"}},
			NextAttempt: &soon,
		},
		Sessions: SessionStatus{Pending: 1},
	}
	whole := Suspension{
		ID: "ses_4f2a", Title: "Fix the login page", Directory: "/home/ann/shop", SuspendedAt: ago(5 * time.Hour).UnixMilli(),
		Cause: restart.CauseParked, State: restart.StateBlocked, Reason: "the directory /home/ann/shop is gone; put it back, or dismiss",
		LastPrompt: &restart.Prompt{Text: "the button does nothing", At: ago(6 * time.Hour).UnixMilli()},
		LastTool:   &restart.Tool{Name: "write", Input: "login.ts", Status: "running"}, WaitingFor: "question",
		Children: []string{"ses_c1", "ses_c2"}, Jobs: []Job{{Kind: "shell", Text: "npm run dev", Status: "running"}},
		Resumes: 2, ClaimedAt: ago(5*time.Hour + time.Minute).UnixMilli(), Attempts: 1,
	}
	failed := Suspension{
		ID: "ses_9", Title: "rm_x && <b>y</b> 😀", Directory: "/tmp", SuspendedAt: ago(10 * time.Second).UnixMilli(),
		Cause: restart.CauseCrash, State: restart.StatePending,
		LastTool: &restart.Tool{Name: "bash", Input: "make test", Status: "error"},
	}
	bare := Suspension{ID: "ses_1", Cause: restart.CauseShutdown, State: restart.StateUnknown, SuspendedAt: ago(time.Minute).UnixMilli()}
	detail := Detail{Suspension: bare, Journal: []Entry{
		{Time: ago(time.Minute), What: "suspended", Detail: "shutdown"},
		{Time: ago(30 * time.Second), What: "dismissed"},
	}}
	pending := Pending{[]Suspension{whole, failed, bare}}

	for name, got := range map[string]string{
		"status_running":        plain.Status(running),
		"status_running_colour": colour.Status(running),
		"status_backoff":        plain.Status(failing),
		"status_upgradable":     plain.Status(upgradable),
		"status_held":           plain.Status(held),
		"pending":               plain.Pending(pending),
		"pending_colour":        colour.Pending(pending),
		"pending_none":          plain.Pending(Pending{}),
		"show":                  plain.Detail(detail),
		"results": plain.Result(Result{ID: "ses_1", Outcome: "resumed"}) + plain.Result(Result{ID: "ses_1", Outcome: "queued"}) +
			plain.Result(Result{ID: "ses_1", Outcome: "already"}) + plain.Result(Result{ID: "ses_1", Outcome: "unknown"}) +
			plain.Result(Result{ID: "ses_1", Outcome: "refused", Reason: "the server is down;\nstart it"}) +
			plain.Dismissed(Dismissed{ID: "ses_1", Dismissed: 1}) + plain.Dismissed(Dismissed{ID: "ses_1", Dismissed: 3}) +
			plain.Interrupted(Interrupted{ID: "ses_1"}),
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, got)
		})
	}
}

// A session must neither steer the terminal nor forge a line of ours.
func TestTextOfSessionsIsCleaned(t *testing.T) {
	t.Parallel()
	const evil = "a\x1b[2Jb\x1b]0;owned\x07\nses_fake  resumed\r\u202egpj.exe\u0085\u200b"
	text := Text{Now: time.UnixMilli(1000)}
	s := Suspension{
		ID: evil, Title: evil, Directory: evil, Reason: evil, WaitingFor: evil, Children: []string{evil},
		Cause: evil, State: evil, Jobs: []Job{{evil, evil, evil}},
		LastPrompt: &restart.Prompt{Text: evil}, LastTool: &restart.Tool{Name: evil, Input: evil, Status: evil},
	}
	for name, got := range map[string]string{
		"pending": text.Pending(Pending{[]Suspension{s}}),
		"show":    text.Detail(Detail{Suspension: s, Journal: []Entry{{What: evil, Detail: evil}}}),
		"result":  text.Result(Result{ID: evil, Outcome: evil, Reason: evil}),
		"dismiss": text.Dismissed(Dismissed{ID: evil}),
		"status": text.Status(Status{
			Supervisor: SupervisorStatus{Version: evil, Available: evil},
			Server:     ServerStatus{State: evil, Available: evil, Generation: evil, Version: evil, URL: evil, Reason: evil, LastExit: &Exit{Signal: evil, Output: []string{evil}}},
			Sessions:   SessionStatus{Working: []Working{{ID: evil, Title: evil}}},
		}),
		"interrupt": text.Interrupted(Interrupted{ID: evil}),
	} {
		for _, bad := range []string{"\x1b", "\x07", "\r", "\u202e", "\u0085", "\u200b", "\nses_fake", "[2J"} {
			if strings.Contains(got, bad) {
				t.Errorf("%s holds %q:\n%q", name, bad, got)
				break
			}
		}
	}
}

func TestPlainLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxHeld+1)
	for name, tc := range map[string]struct {
		writes []string
		want   string
	}{
		"lines":          {[]string{"one\ntwo\n"}, "one\ntwo\n"},
		"cut anywhere":   {[]string{"on", "e\x1b[3", "1mred\x1b[", "0m\nt", "wo\n"}, "onered\ntwo\n"},
		"an unended one": {[]string{"one\ntw"}, "one\n"},
		"unended escape": {[]string{"one\x1b[31\n"}, "one\n"},
		"empty":          {[]string{"\n\n"}, "\n\n"},
		"a cut rune":     {[]string{"caf\xc3", "\xa9\n"}, "café\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			w := PlainLines(&out)
			for _, s := range tc.writes {
				if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
					t.Fatal(n, err)
				}
			}
			if out.String() != tc.want {
				t.Errorf("got %q, want %q", out.String(), tc.want)
			}
		})
	}
	t.Run("as JSON", func(t *testing.T) {
		t.Parallel()
		var out strings.Builder
		_, _ = io.WriteString(JSONLines(&out), "a \"b\"\x1b\nc\n")
		if want := "{\"line\":\"a \\\"b\\\"\\u001b\"}\n{\"line\":\"c\"}\n"; out.String() != want {
			t.Errorf("got %s, want %s", &out, want)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		t.Parallel()
		var out strings.Builder
		w := &lines{w: &out, show: func(s string) string { return s }}
		if _, err := w.Write([]byte(long)); err != nil || len(w.held) > maxHeld || out.Len() == 0 {
			t.Errorf("%d held, %d out, %v", len(w.held), out.Len(), err)
		}
	})
}

func TestManyPendingGetALineEach(t *testing.T) {
	t.Parallel()
	var p Pending
	for range 50 {
		p.Pending = append(p.Pending, Suspension{ID: "ses_1", Title: "Fix it", Directory: "/d", WaitingFor: "question"})
	}
	text := Text{Now: time.Now()}.Pending(p)
	if n := strings.Count(text, "\n"); n > 55 || !strings.HasPrefix(text, "50 sessions wait") || strings.Count(text, "waits for a question") != 50 {
		t.Errorf("%d lines:\n%s", n, text)
	}
}

func TestManyAtWork(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1790000000000)
	var st Status
	for i := range 12 {
		started := now.Add(-time.Duration(i*i*i) * time.Hour).UnixMilli()
		st.Sessions.Working = append(st.Sessions.Working, Working{ID: "ses_1", Title: "Fix it", StartedAt: started, ProgressAt: now.Add(time.Minute).UnixMilli()})
	}
	text := Text{Now: now}.Status(st)
	if strings.Count(text, "ses_1") != maxWorking || !strings.Contains(text, "and 2 more\n") || strings.Contains(text, "no progress") {
		t.Errorf("\n%s", text)
	}
	for _, want := range []string{"for 0 s\n", "for 1 h 0 min\n", "for 8 h 0 min\n", "for 1 day\n", "for 30 days\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no line says %q:\n%s", want, text)
		}
	}
}
