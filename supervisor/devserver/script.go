package devserver

import (
	"strconv"
	"strings"
	"time"
)

// step is one directive of a script: one request to the provider.
//
//	[[slow n=60 ms=500]]   n words, one each ms milliseconds
//	[[shell CMD]]          runs CMD, and waits for it
//	[[bgshell CMD]]        runs CMD in the background; its end wakes the session
//	[[subagent PROMPT]]    a child session does PROMPT; waits for it
//	[[background PROMPT]]  a child session does PROMPT in the background; its end wakes the session
//	[[permission]]         asks for a permission, and waits
//	[[question]]           asks a question, and waits
//	[[empty]]              the model answers nothing, and the turn ends
//	[[fail]]               the provider answers 400 (also [[err 400]])
//	[[crash AFTER]]        the server dies after that duration
//
// A prompt without directives gets one short answer.
type step struct {
	kind string
	arg  string
}

// The kinds of steps, as they are written.
const (
	stepSlow       = "slow"
	stepShell      = "shell"
	stepBgShell    = "bgshell"
	stepSubagent   = kindSubagent
	stepBackground = "background"
	stepPermission = "permission"
	stepQuestion   = "question"
	stepEmpty      = "empty"
	stepFail       = "fail"
	stepErr        = "err"
	stepCrash      = "crash"
)

var shortAnswer = step{stepSlow, "n=5 ms=5"}

// parseScript gives the directives that stand in text. Brackets nest, so that a
// child's prompt can hold directives of its own.
func parseScript(text string) []step {
	var script []step
	for {
		start := strings.Index(text, "[[")
		if start < 0 {
			return script
		}
		body, rest, ok := bracketed(text[start:])
		if !ok {
			return script
		}
		kind, arg, _ := strings.Cut(strings.TrimSpace(body), " ")
		script = append(script, step{kind, strings.TrimSpace(arg)})
		text = rest
	}
}

// bracketed splits text, which begins with "[[", at its matching "]]".
func bracketed(text string) (body, rest string, ok bool) {
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "[[":
			depth++
			i++
		case "]]":
			depth--
			i++
			if depth == 0 {
				return text[2 : i-1], text[i+1:], true
			}
		}
	}
	return "", "", false
}

// tokens reads a slow step: how many words, and the time between two.
func (st step) tokens() (n int, pause time.Duration) {
	n, pause = 5, 5*time.Millisecond
	for field := range strings.FieldsSeq(st.arg) {
		key, value, _ := strings.Cut(field, "=")
		number, err := strconv.Atoi(value)
		if err != nil || number < 0 {
			continue
		}
		switch key {
		case "n":
			n = number
		case "ms":
			pause = time.Duration(number) * time.Millisecond
		}
	}
	return n, pause
}

// final tells whether a turn ends with this step, so that no closing answer follows.
func (st step) final() bool {
	switch st.kind {
	case stepSlow, stepEmpty, stepFail, stepErr:
		return true
	}
	return false
}

// isContinuation tells a prompt that only asks to go on from one that asks for something new.
func isContinuation(text string) bool {
	text = strings.TrimSpace(text)
	return len(parseScript(text)) == 0 && (text == "" || strings.HasPrefix(strings.ToLower(text), "continue"))
}

// plan is what is left to do in a session: the script of the last prompt that asked
// for something new, without the steps that were completed and the words that were
// written since. When nothing is left, the model gives a short answer. proceed,
// when not "", replaces what is left of a script that was begun already: continued
// tells that nobody prompted this turn.
func plan(history []message, proceed string, continued bool) []step {
	var script []step
	completed, written, begun := 0, 0, false
	for _, m := range history {
		switch text, _ := m["text"].(string); m["type"] {
		case "user":
			if isContinuation(text) {
				begun = true
				continue
			}
			script, completed, written, begun = closed(parseScript(text)), 0, 0, false
		case "synthetic":
			begun = true
		case "assistant":
			begun = true
			if m["finish"] == "stop" || m["finish"] == "tool-calls" {
				completed, written = completed+1, 0
				continue
			}
			written += words(m)
		}
	}
	if completed >= len(script) {
		return []step{shortAnswer}
	}
	if (begun || continued) && proceed != "" {
		return closed(parseScript(proceed))
	}
	left := append([]step(nil), script[completed:]...)
	if left[0].kind == stepSlow {
		n, pause := left[0].tokens()
		left[0].arg = "n=" + strconv.Itoa(max(1, n-written)) + " ms=" + strconv.FormatInt(pause.Milliseconds(), 10)
	}
	return left
}

// closed is a script that ends with an answer.
func closed(script []step) []step {
	if len(script) == 0 || !script[len(script)-1].final() {
		script = append(script, shortAnswer)
	}
	return script
}

// words counts what the model wrote in a message.
func words(m message) int {
	n := 0
	content, _ := m["content"].([]any)
	for _, part := range content {
		if p, ok := part.(map[string]any); ok {
			text, _ := p["text"].(string)
			n += len(strings.Fields(text))
		}
	}
	return n
}

// titleOf is a title for a session that begins with text.
func titleOf(text string) string {
	plain := text
	for {
		start := strings.Index(plain, "[[")
		if start < 0 {
			break
		}
		_, rest, ok := bracketed(plain[start:])
		if !ok {
			break
		}
		plain = plain[:start] + rest
	}
	line, _, _ := strings.Cut(strings.TrimSpace(plain), "\n")
	if runes := []rune(line); len(runes) > 50 {
		line = string(runes[:50])
	}
	if line = strings.TrimSpace(line); line == "" {
		return "Scripted task"
	}
	return line
}
