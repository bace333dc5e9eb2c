package platform

import (
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	began := time.Unix(1, 0)
	var p progress
	for _, tt := range []struct {
		after, hint time.Duration
		point       uint32
		late        bool
	}{
		{0, time.Second, 0, false},
		{progressQuiet, time.Second, 0, false},
		{progressQuiet + 1, time.Minute, 0, false}, // it has said that it takes longer
		{progressQuiet + 1, time.Second, 0, true},
		{progressQuiet + 2, time.Second, 1, false},
		{2 * progressQuiet, time.Second, 1, false},
		{2*progressQuiet + 3, time.Second, 1, true},
		{progressLimit, time.Second, 2, false},
		{progressLimit + 1, time.Hour, 3, true}, // whatever it says
	} {
		if got := p.late(began.Add(tt.after), tt.point, tt.hint); got != tt.late {
			t.Errorf("after %s at %d: late %t", tt.after, tt.point, got)
		}
	}
}
