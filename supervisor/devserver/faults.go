package devserver

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// faults is a comma-separated list of ways to misbehave, or @FILE to have the
// list read from FILE at each use (no file: no faults), so that a running server
// can be made to fail.
//
//	never-healthy      accepts connections and answers nothing
//	health-500         500, with the body of a healthy server
//	health-401         as if the password were wrong
//	exit-at-once       a message on standard error, exit status 1
//	exit-silently      exit status 1 and not a word
//	port-taken         as if its port were taken by another program
//	ignore-term        ignores SIGTERM and SIGINT
//	ignore-stop        accepts POST /api/service/stop and does not stop
//	slow-stop=DUR      a graceful stop takes that much longer
//	big-output[=BYTES] writes that much (default 4 MB) to both outputs at start
//
// The following concern resume, prompt and synthetic:
//
//	resume-500, resume-404   answers so, without executing
//	drop-before              breaks the connection without executing
//	drop-resume              executes, and breaks the connection instead of answering
//	crash-after-resume=DUR   accepts, and dies that much later
type faults string

// has tells whether the fault name is wished for, and its value.
func (f faults) has(name string) (value string, ok bool) {
	list := string(f)
	if path, isFile := strings.CutPrefix(list, "@"); isFile {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", false
		}
		list = strings.TrimSpace(string(data))
	}
	for fault := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(fault), "=")
		if key == name {
			return value, true
		}
	}
	return "", false
}

// on tells whether the fault name is wished for.
func (f faults) on(name string) bool {
	_, ok := f.has(name)
	return ok
}

// duration is the value of the fault name; ok is false when it is not wished for or has none.
func (f faults) duration(name string) (time.Duration, bool) {
	value, _ := f.has(name)
	d, err := time.ParseDuration(value)
	return d, err == nil
}

// size is the value of the fault name in bytes, or fallback.
func (f faults) size(name string, fallback int) int {
	value, _ := f.has(name)
	if n, err := strconv.Atoi(value); err == nil {
		return n
	}
	return fallback
}
