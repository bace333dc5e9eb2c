package tray

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"intermission/restart"
)

// Bounds of what a menu shows, in graphemes.
const (
	maxTitle  = 40
	maxDir    = 30
	maxQuote  = 60
	maxReason = 90
	maxPath   = 4096
)

// clock words ages, and remembers when the first of its words will be out of date.
type clock struct {
	now  time.Time
	next time.Time // zero: never
}

// until notes that something shown changes at t.
func (c *clock) until(t time.Time) {
	if t.After(c.now) && (c.next.IsZero() || t.Before(c.next)) {
		c.next = t
	}
}

// steps of an age: up to bound it is told in multiples of step.
var steps = []struct{ bound, step time.Duration }{
	{10 * time.Minute, time.Minute},
	{time.Hour, 5 * time.Minute},
	{48 * time.Hour, time.Hour},
}

const day = 24 * time.Hour

// age words how long ago ms (Unix milliseconds) is: "5 min", "3 h", "2 d", and ""
// for less than a minute. The older, the coarser, so that a menu seldom changes by time alone.
func (c *clock) age(ms int64) string {
	at := time.UnixMilli(ms)
	d := c.now.Sub(at)
	step := day
	for _, s := range steps {
		if d < s.bound {
			step = s.step
			break
		}
	}
	if d < 0 { // our clock was set back, or the server's is ahead
		c.until(at.Add(time.Minute))
		return ""
	}
	d = d.Truncate(step)
	c.until(at.Add(d + step))
	switch {
	case d < time.Minute:
		return ""
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/day)
}

// ago is age for a sentence.
func (c *clock) ago(ms int64) string {
	if age := c.age(ms); age != "" {
		return age + " ago"
	}
	return "just now"
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// titleOf names a session.
func titleOf(title, id string) string {
	if t := restart.PlainText(title, maxTitle); t != "" {
		return t
	}
	return restart.PlainText(id, maxTitle)
}

// shortDir shortens a directory from the left, where it tells least: "~/src/app", "…/deep/app".
func shortDir(dir, home string) string {
	dir = restart.PlainText(dir, maxPath)
	if rest, inside := strings.CutPrefix(dir, home); inside && home != "" && (rest == "" || rest[0] == filepath.Separator) {
		dir = "~" + rest
	}
	runes := []rune(dir)
	if len(runes) <= maxDir {
		return dir
	}
	// From the left-most separator on from where it fits.
	tail := runes[len(runes)-maxDir+1:]
	if at := slices.Index(tail, filepath.Separator); at >= 0 {
		return "…" + string(tail[at:])
	}
	if at := strings.LastIndexByte(dir, filepath.Separator); at > 0 { // its last part alone is too long
		return restart.PlainText("…"+dir[at:], maxDir)
	}
	return restart.PlainText(dir, maxDir)
}

// quote quotes untrusted text in a line.
func quote(s string) string { return "“" + restart.PlainText(s, maxQuote) + "”" }

// causes words why a session is suspended.
var causes = map[restart.Cause]string{
	restart.CauseShutdown: "the server was stopped",
	restart.CauseCrash:    "the server ended unexpectedly",
	restart.CauseParked:   "found unfinished at a start",
}

func causeWords(c restart.Cause) string {
	if w, known := causes[c]; known {
		return w
	}
	return restart.PlainText(string(c), maxQuote)
}

// wrap breaks a text into n lines of at most width graphemes, the last ones empty
// where it is shorter; what doesn't fit is cut.
func wrap(text string, width, n int) []string {
	out := make([]string, n)
	words := strings.Fields(restart.PlainText(text, width*n))
	for i := range out {
		for len(words) > 0 && (out[i] == "" || len([]rune(out[i]))+1+len([]rune(words[0])) <= width) {
			out[i] = strings.TrimSpace(out[i] + " " + words[0])
			words = words[1:]
		}
	}
	if len(words) > 0 {
		out[n-1] = restart.PlainText(out[n-1]+" "+strings.Join(words, " "), width)
	}
	for i := range out {
		out[i] = restart.PlainText(out[i], width)
	}
	return out
}

// sentence makes a reason fit for a line: one line, cut.
func sentence(s string) string { return restart.PlainText(s, maxReason) }

// and lists names: "a, b and 3 more".
func and(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}
