package demo

import (
	"bytes"
	"strings"
	"testing"
)

// promised is what a good run counts.
var promised = counts{alone: 2, unasked: 0, waiting: 2, resumed: 1, dismissed: 0, later: 0, left: 0}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		wrong func(*counts)
		says  []string // nil: all is as promised
	}{
		{"as promised", func(*counts) {}, nil},
		{"the fault shows more than once", func(c *counts) { c.alone = 7 }, nil},
		{"the fault does not show", func(c *counts) { c.alone = 0 }, []string{"without intermission: executions nobody asked for: 0, not > 0"}},
		{"an execution without consent", func(c *counts) { c.unasked = 1 }, []string{"with intermission: executions nobody asked for: 1, not 0"}},
		{"one is not listed", func(c *counts) { c.waiting = 1 }, []string{"sessions that waited for consent: 1, not 2"}},
		{"one too many is listed", func(c *counts) { c.waiting = 3 }, []string{"sessions that waited for consent: 3, not 2"}},
		{"consent without effect", func(c *counts) { c.resumed = 0 }, []string{"one session resumed: continuations: 0, not 1"}},
		{"one consent, two continuations", func(c *counts) { c.resumed = 2 }, []string{"one session resumed: continuations: 2, not 1"}},
		{"a dismissed one goes on", func(c *counts) { c.dismissed = 1 }, []string{"one session dismissed: continuations: 1, not 0"}},
		{"an execution after one more reboot", func(c *counts) { c.later = 1 }, []string{"further executions: 1, not 0"}},
		{"one comes back", func(c *counts) { c.left = 1 }, []string{"sessions that wait for consent: 1, not 0"}},
		{"several", func(c *counts) { *c = counts{} }, []string{"> 0", "waited for consent: 0", "continuations: 0, not 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := promised
			tt.wrong(&c)
			err := c.judge()
			var table bytes.Buffer
			screen{out: &table}.table(c.verdicts())
			if wrong := strings.Count(table.String(), "WRONG"); wrong != len(tt.says) {
				t.Errorf("the table names %d wrong counts, not %d:\n%s", wrong, len(tt.says), &table)
			}
			if tt.says == nil {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("it was found good")
			}
			for _, words := range tt.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
		})
	}
}
