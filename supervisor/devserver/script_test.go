package devserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseScript(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]step{
		"no directives":                       nil,
		"go [[slow n=60 ms=500]]":             {{"slow", "n=60 ms=500"}},
		"[[shell echo a]] then [[fail]] [[x]": {{"shell", "echo a"}, {"fail", ""}},
		"[[subagent do [[slow n=1]] now]]":    {{"subagent", "do [[slow n=1]] now"}},
		"[[shell [[ -f x ]] && y]]":           {{"shell", "[[ -f x ]] && y"}},
		"]] [[":                               nil,
	} {
		if diff := cmp.Diff(want, parseScript(text), cmp.AllowUnexported(step{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	user := func(text string) message { return message{"type": "user", "text": text} }
	synthetic := message{"type": "synthetic", "text": "go on"}
	assistant := func(finish, text string) message {
		return message{"type": "assistant", "finish": finish, "content": []any{map[string]any{"type": "text", "text": text}}}
	}
	slow := func(arg string) step { return step{stepSlow, arg} }
	for name, row := range map[string]struct {
		history []message
		proceed string
		want    []step

		continued bool
	}{
		"nothing":               {nil, "", []step{shortAnswer}, false},
		"a plain prompt":        {[]message{user("hi")}, "", []step{{stepSlow, "n=5 ms=5"}}, false},
		"a script":              {[]message{user("[[shell x]]")}, "", []step{{stepShell, "x"}, shortAnswer}, false},
		"cut short":             {[]message{user("[[slow n=9 ms=2]]"), assistant("error", "tok1 tok2")}, "", []step{slow("n=7 ms=2")}, false},
		"cut short twice":       {[]message{user("[[slow n=9 ms=2]]"), assistant("error", "tok1"), synthetic, assistant("error", "tok1")}, "", []step{slow("n=7 ms=2")}, false},
		"a step is done":        {[]message{user("[[shell x]] [[slow n=3 ms=1]]"), assistant("tool-calls", "")}, "", []step{slow("n=3 ms=1")}, false},
		"all is done":           {[]message{user("[[shell x]]"), assistant("tool-calls", ""), assistant("stop", "a"), synthetic}, "", []step{shortAnswer}, false},
		"continue":              {[]message{user("[[fail]]"), assistant("error", ""), user("Continue from where you left off")}, "", []step{{stepFail, ""}}, false},
		"something new":         {[]message{user("[[fail]]"), assistant("error", ""), user("[[empty]]")}, "", []step{{stepEmpty, ""}}, false},
		"configured":            {[]message{user("[[shell x]]"), assistant("error", ""), synthetic}, "[[slow n=1 ms=1]]", []step{slow("n=1 ms=1")}, false},
		"configured, resumed":   {[]message{user("[[fail]]")}, "[[slow n=1 ms=1]]", []step{slow("n=1 ms=1")}, true},
		"configured, not begun": {[]message{user("[[fail]]")}, "[[slow n=1 ms=1]]", []step{{stepFail, ""}}, false},
	} {
		if diff := cmp.Diff(row.want, plan(row.history, row.proceed, row.continued), cmp.AllowUnexported(step{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestTitleOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"write the report [[slow n=3 ms=1]]\nand more": "write the report",
		"[[subagent a [[fail]] b]] rest":               "rest",
		"[[fail]]":                                     "Scripted task",
		"[[ open":                                      "[[ open",
	} {
		if got := titleOf(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestScripts plays each directive that ends by itself.
func TestScripts(t *testing.T) {
	t.Parallel()
	for text, row := range map[string]struct {
		requests, messages int
		last               string
	}{
		"hello":                      {1, 2, "succeeded.1"},
		"[[slow n=3 ms=1]]":          {1, 2, "succeeded.1"},
		"[[shell echo out; exit 3]]": {2, 3, "succeeded.1"},
		"[[subagent hello]]":         {2, 3, "succeeded.1"},
		"[[empty]]":                  {1, 1, "succeeded.1"},
		"[[fail]]":                   {1, 2, "failed.1"},
		"[[err 400]]":                {1, 2, "failed.1"},
		"[[nonsense]]":               {1, 2, "failed.1"},
	} {
		for _, k := range both {
			t.Run(text+"/"+string(k), func(t *testing.T) {
				t.Parallel()
				u := newUser(t, k)
				p := u.start()
				id := p.begin(text)
				p.settle(id)
				if n := u.requestsOf(id); n != row.requests {
					t.Errorf("%d requests, want %d", n, row.requests)
				}
				if n := len(p.messages(id)); n != row.messages {
					t.Errorf("%d messages, want %d", n, row.messages)
				}
				if got := u.lastEvent(id); got != row.last {
					t.Errorf("the last event is %q, want %q", got, row.last)
				}
			})
		}
	}
}

// TestBackgroundShell: its end is told to its session, which wakes.
func TestBackgroundShell(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			id := p.begin("[[bgshell true]]")
			u.eventually("the session is told", func() bool {
				for _, m := range p.messages(id) {
					if m["type"] == "synthetic" {
						return true
					}
				}
				return false
			})
			u.eventually("no row is left", func() bool { return u.jobRows() == "0" })
			u.eventually("the session wakes", func() bool { return u.requestsOf(id) == 3 })
		})
	}
}
