package platform

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescend(t *testing.T) {
	t.Parallel()
	row := func(pid, parent int, start uint64) process {
		return process{id: Identity{PID: pid, Start: string(rune('a' + start)), Boot: "b"}, parent: parent, start: start}
	}
	all := []process{
		row(1, 0, 0),
		row(50, 40, 9), // listed before its parent
		row(20, 1, 3),
		row(30, 20, 4),
		row(40, 20, 5),
		row(60, 20, 2), // older than its "parent": that pid was another's
		row(61, 60, 6),
		row(70, 1, 5), // not below
		row(80, 80, 5),
	}
	for _, tt := range []struct {
		name string
		root process
		want []int
	}{
		{"parents first", row(20, 1, 3), []int{20, 30, 40, 50}},
		{"leaf", row(50, 40, 9), []int{50}},
		{"the root's pid is another's now", row(20, 1, 1), nil},
		{"the root is gone", row(99, 1, 1), nil},
		{"a parent of itself", row(80, 80, 5), []int{80}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []int
			for _, p := range descend(all, tt.root.id) {
				got = append(got, p.id.PID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
