//go:build linux

package lab

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// entry is a line of the machine's journal.
type entry struct {
	who     string // the program's name for itself
	message string
	at      int64 // Unix milliseconds, when it was sent
}

// ownTime is when our own log says that a line was written: what comes by standard
// error has no time of its sender's, and reaches the journal when the journal gets to it.
var ownTime = regexp.MustCompile(`^time=(\S+) `)

// journal gives the lines of one boot: 0 is the last one, -1 the one before.
func (m *machine) journal(t *testing.T, boot int) []entry {
	t.Helper()
	var entries []entry
	for line := range strings.Lines(m.must(t, "journalctl", "--no-pager", "--output=json", fmt.Sprintf("--boot=%d", boot))) {
		var e struct {
			Who      string `json:"SYSLOG_IDENTIFIER"`
			Message  any    `json:"MESSAGE"` // what isn't text is a list of numbers
			Sent     string `json:"_SOURCE_REALTIME_TIMESTAMP"`
			Received string `json:"__REALTIME_TIMESTAMP"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("cannot read the journal: %v: %s", err, line)
		}
		text, _ := e.Message.(string)
		if e.Sent == "" {
			e.Sent = e.Received
		}
		micros, err := strconv.ParseInt(e.Sent, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		at := micros / 1000
		if own := ownTime.FindStringSubmatch(text); own != nil {
			if written, err := time.Parse(time.RFC3339, own[1]); err == nil {
				at = written.UnixMilli()
			}
		}
		entries = append(entries, entry{e.Who, text, at})
	}
	return entries
}

// wantOrder wants these lines one after another, to the millisecond: each is a name
// and a part of the message, with ": " between.
func wantOrder(t *testing.T, entries []entry, want ...string) {
	t.Helper()
	good, reached := true, int64(0)
	for i, line := range want {
		who, part, _ := strings.Cut(line, ": ")
		first, next := int64(-1), int64(-1) // of all such lines, and of those after the line before
		for _, e := range entries {
			if e.who != who || !strings.Contains(e.message, part) {
				continue
			}
			if first < 0 || e.at < first {
				first = e.at
			}
			if e.at >= reached && (next < 0 || e.at < next) {
				next = e.at
			}
		}
		switch {
		case first < 0:
			t.Errorf("the journal lacks %q", line)
		case next < 0:
			t.Errorf("%q is %d ms before %q in the journal, not after it", line, reached-first, want[i-1])
		default:
			reached = next
			continue
		}
		good = false
	}
	if !good {
		var all strings.Builder
		for _, e := range entries {
			fmt.Fprintf(&all, "%d %s: %s\n", e.at, e.who, e.message)
		}
		t.Logf("the journal:\n%s", tail(all.String(), 150))
	}
}
