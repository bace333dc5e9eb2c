package opencode

import (
	"errors"
	"strings"
	"testing"
)

func TestKindIsFoundByLooking(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, schema, change string
		gen                  Generation
		want                 string
	}{
		{"v1", KindV1, "", V1, KindV1},
		{"early", KindEarly, "", V2, KindEarly},
		{"claims", KindClaims, "", V2, KindClaims},
		{"renamed column", KindClaims, "ALTER TABLE session_v2 RENAME COLUMN time_suspended TO execution_claimed_at", V2, KindClaims},
		{"v1 runs on a preview's file", KindEarly, "", V1, KindV1},
		{"v2 will migrate a v1 file", KindV1, "", V2, KindV1},
		{"v1's old table beside v2's", KindClaims, "CREATE TABLE session (id, parent_id, directory, title, time_archived)", V2, KindClaims},
		{"v1 runs beside v2's table", KindV1, "CREATE TABLE session_v2 (id, time_suspended)", V1, KindV1},
		{"early without jobs", KindEarly, "DROP TABLE kv", V2, KindEarly},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, c.schema)
			if c.change != "" {
				s.exec(c.change)
			}
			d := s.open(c.gen)
			if got := d.Kind(); got != c.want {
				t.Errorf("kind %s, want %s", got, c.want)
			}
			if _, err := d.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnknownShapesFailClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, schema string
		gen          Generation
		change       string
		names        string // what the error must name
	}{
		{"another program's file", KindAbsent, V2, "CREATE TABLE bookmarks (id)", "neither table session nor session_v2"},
		{"v1 without its table", KindClaims, V1, "", "no table session"},
		{"both tables claim", KindClaims, V2, "CREATE TABLE session (id, time_suspended)", "both tables session and session_v2"},
		{"two claim columns", KindClaims, V2, "ALTER TABLE session_v2 ADD execution_claimed_at INTEGER", "table session_v2"},
		{"two claim columns, early", KindEarly, V2, "ALTER TABLE session ADD execution_claimed_at INTEGER", "table session"},
		{"claim column renamed again", KindClaims, V2, "ALTER TABLE session_v2 RENAME COLUMN time_suspended TO leased_at", "table session_v2"},
		{"no jobs where there must be", KindClaims, V2, "DROP TABLE kv", "no table kv"},
		{"jobs of another shape", KindEarly, V2, "ALTER TABLE kv RENAME COLUMN value TO body", "table kv has no column value"},
		{"events of another shape", KindEarly, V2, "ALTER TABLE event RENAME COLUMN type TO kind", "table event has no column type"},
		{"no events", KindClaims, V2, "DROP TABLE event", "no table event"},
		{"v1 without parts", KindV1, V1, "DROP TABLE part", "no table part"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, c.schema)
			if c.change != "" {
				s.exec(c.change)
			}
			d, err := OpenDatabase(s.path, c.gen)
			var unknown *UnknownShapeError
			if !errors.As(err, &unknown) || unknown.Path != s.path || !strings.Contains(unknown.Reason, c.names) {
				t.Errorf("got %v, %v", d, err)
			}
			if act := "; update intermission, or set OPENCODE_DB to another file"; err != nil && !strings.HasSuffix(err.Error(), act) {
				t.Errorf("no act is suggested: %v", err)
			}
		})
	}
}

func TestUnknownShapeAfterOpeningFailsClosed(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.session("ses_1", "time_suspended = 7")
	d := s.open(V2)
	s.exec(`ALTER TABLE session_v2 RENAME COLUMN time_suspended TO leased_at`)
	var unknown *UnknownShapeError
	if sweep, err := d.Sweep(t.Context()); !errors.As(err, &unknown) {
		t.Errorf("%v, %v", sweep, err)
	}
	s.exec(`ALTER TABLE session_v2 RENAME COLUMN leased_at TO time_suspended`)
	if sweep, err := d.Sweep(t.Context()); err != nil || len(sweep.Claims) != 1 {
		t.Errorf("known again: %v, %v", sweep, err)
	}
}
