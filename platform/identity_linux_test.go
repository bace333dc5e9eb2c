package platform

import (
	"strings"
	"testing"
)

func TestIdentifyOfAProcessNamedLikeItsStatus(t *testing.T) {
	t.Parallel()
	c, _ := spawn(t, "named", "a) Z 1 (b) 2")
	if id := c.identity(t); !id.Alive() {
		t.Errorf("%+v isn't alive", id)
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 7 3 3 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1"
	for _, tt := range []struct {
		name, in string
		want     stat
		err      string
	}{
		{name: "plain", in: "12 (sh)" + rest, want: stat{'S', 7, 1, 4242}},
		{name: "name with parentheses", in: "12 (a) Z 1 (b)" + rest, want: stat{'S', 7, 1, 4242}},
		{name: "name with a newline", in: "12 (a\n)" + rest + "\n", want: stat{'S', 7, 1, 4242}},
		{name: "empty", in: "", err: "cannot read"},
		{name: "cut off", in: "12 (sh) S 7 3", err: "cannot read"},
		{name: "no number", in: strings.Replace("12 (sh)"+rest, "4242", "x", 1), err: "cannot read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat([]byte(tt.in))
			checkError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}
