package opencode

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"intermission/restart"
)

func TestKey(t *testing.T) {
	t.Parallel()
	d := restart.Delivery{Session: "ses_1", Suspended: 1796058701234}
	form := regexp.MustCompile(`^msg_([0-9a-f]{12})[0-9A-Za-z]{14}$`)
	m := form.FindStringSubmatch(Key(d))
	if m == nil {
		t.Fatalf("%q is not of the server's form", Key(d))
	}
	head, _ := strconv.ParseUint(m[1], 16, 64)
	if ms := uint64(d.Suspended) & (1<<36 - 1); head>>12 != ms {
		t.Errorf("%q holds %d, want %d", Key(d), head>>12, ms)
	}
	if part := regexp.MustCompile(`^prt_[0-9a-f]{12}[0-9A-Za-z]{14}$`); !part.MatchString(PartKey(d)) || PartKey(d)[4:] == Key(d)[4:] {
		t.Errorf("part key is %q, message key %q", PartKey(d), Key(d))
	}
	seen := map[string]restart.Delivery{}
	for n := range 200 {
		for _, d := range []restart.Delivery{
			{Session: fmt.Sprintf("ses_%d", n), Suspended: 1796058701234},
			{Session: "ses_x", Suspended: 1796058701234 + int64(n)},
		} {
			if other, ok := seen[Key(d)]; ok {
				t.Fatalf("%+v and %+v have one key", d, other)
			}
			seen[Key(d)] = d
			again := d
			again.Text, again.Agent, again.Directory = "another text", "plan", "/elsewhere"
			if Key(again) != Key(d) {
				t.Fatalf("the key of %+v depends on more than the suspension", d)
			}
		}
	}
}

func TestKeySortsAfterWhatWasSuspended(t *testing.T) {
	t.Parallel()
	// Recorded with 1.18.33: an assistant message, its time, and a turn suspended in the same millisecond.
	const last, at = "msg_22d70fc54001dgXuV65mA9G0Ih", 1796058709076
	if key := Key(restart.Delivery{Session: "ses_1", Suspended: at}); key <= last {
		t.Errorf("%s sorts before %s: v1 would take the continuation for answered", key, last)
	}
}

func TestIsKey(t *testing.T) {
	t.Parallel()
	ours := Key(restart.Delivery{Session: "ses_1", Suspended: 1796058701234})
	for message, want := range map[string]bool{
		ours: true, ours[:len(ours)-1] + "_": false, "msg_" + ours: false, "": false, "msg_": false,
		"msg_zzzzzzzzzzzz00000000000000":                                      false,
		Key(restart.Delivery{Session: "ses_2", Suspended: 1796058701234}):     false, // another session's
		Key(restart.Delivery{Session: "ses_1", Suspended: 1}):                 true,
		Key(restart.Delivery{Session: "ses_1", Suspended: 4102444800000 - 1}): true, // the end of 2099
	} {
		if got := isKey("ses_1", message); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
