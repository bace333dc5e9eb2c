package demo

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := report(&out, counts{alone: 2, waiting: 2, resumed: 7}.verdicts()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Counts []struct {
			Want    string
			Counted int
			Good    bool
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Counts); n != 7 || !got.Counts[0].Good || got.Counts[0].Want != "> 0" || got.Counts[3].Good || got.Counts[3].Counted != 7 {
		t.Errorf("%s", &out)
	}
}
