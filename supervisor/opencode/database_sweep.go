package opencode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"intermission/platform"
	"intermission/restart"
)

// jobPrefix begins the key of every background job; jobEnd is the first key after them.
const jobPrefix, jobEnd = "job.background/", "job.background0"

// Sweep implements restart.Database. Claims of subagents are in it too: a server
// clears them at boot, and what was at work would be lost. A job that can't be
// parsed is an *UnknownShapeError, because whom it would wake can't be told.
func (d *Database) Sweep(ctx context.Context) (restart.Sweep, error) {
	var sweep restart.Sweep
	err := d.read(ctx, func(q querier, s shape) error {
		columns := slices.Concat([]string{"id", "parent_id", s.claim}, s.owner)
		if s.attempts {
			columns = append(columns, "resume_attempts")
		}
		err := d.eachClaim(ctx, q, s, object(columns), func(c restart.Claim, raw string) error {
			c.Raw = json.RawMessage(raw)
			sweep.Claims = append(sweep.Claims, c)
			return nil
		})
		if err != nil {
			return err
		}
		slices.SortFunc(sweep.Claims, func(a, b restart.Claim) int { return strings.Compare(a.Session, b.Session) })
		err = eachJob(ctx, q, s, object(s.jobs), func(key, value, raw string) error {
			job, err := parseJob(key, value)
			if err == nil && !utf8.ValidString(raw) {
				err = errors.New("not UTF-8")
			}
			if err != nil {
				return &UnknownShapeError{Path: d.path, Reason: fmt.Sprintf("background job %q of table kv: %v", key, err)}
			}
			job.Raw = json.RawMessage(raw)
			sweep.Jobs = append(sweep.Jobs, job)
			return nil
		})
		if err != nil || len(sweep.Claims)+len(sweep.Jobs) == 0 {
			return err
		}
		version, err := dataVersion(ctx, q)
		d.swept = swept{restart.Sweep{Claims: slices.Clone(sweep.Claims), Jobs: slices.Clone(sweep.Jobs)}, version}
		return err
	})
	if err != nil {
		return restart.Sweep{}, err
	}
	d.tellElsewhere(sweep.Claims)
	return sweep, nil
}

// OpenSince tells whether another process has had the database open since the time
// ms (Unix), or may have. Our own server has not: it is younger than what waits.
func (d *Database) OpenSince(ms int64) bool {
	list, _ := platform.Holders(d.path) // who can't be asked is not known
	return slices.ContainsFunc(list, func(h platform.Holder) bool { return h.Since.UnixMilli() <= ms })
}

// tellElsewhere notes which claims another process may have written: a server that
// somebody else started, without the service's lock.
func (d *Database) tellElsewhere(claims []restart.Claim) {
	if len(claims) == 0 || d.Kind() != KindClaims {
		return
	}
	list, _ := platform.Holders(d.path)
	for _, h := range list {
		for i := range claims {
			if h.Since.UnixMilli() <= claims[i].ClaimedAt {
				claims[i].Elsewhere = true
			}
		}
	}
}

// eachClaim calls f with each claim, in no certain order, and with raw,
// which is SQL, of its row.
func (d *Database) eachClaim(ctx context.Context, q querier, s shape, raw string, f func(c restart.Claim, raw string) error) error {
	if s.claim == "" {
		return nil
	}
	attempts := "0"
	if s.attempts {
		attempts = "resume_attempts"
	}
	rows, err := q.QueryContext(ctx, fmt.Sprintf(
		`SELECT id, %[1]s, %[2]s, coalesce(parent_id, ''), %[3]s FROM %[4]s WHERE %[1]s IS NOT NULL`, s.claim, attempts, raw, s.sessions))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c restart.Claim
		var at any
		if err := rows.Scan(&c.Session, &at, &c.Attempts, &c.Parent, &raw); err != nil {
			return err
		}
		var isTime bool
		if c.ClaimedAt, isTime = at.(int64); !isTime {
			return &UnknownShapeError{Path: d.path, Reason: fmt.Sprintf("%s.%s of %s is no time: %v", s.sessions, s.claim, c.Session, at)}
		}
		if err := f(c, raw); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eachJob calls f with each background job, in the order of keys, and with raw,
// which is SQL, of its row.
func eachJob(ctx context.Context, q querier, s shape, raw string, f func(key, value, raw string) error) error {
	if len(s.jobs) == 0 {
		return nil
	}
	rows, err := q.QueryContext(ctx, fmt.Sprintf(
		`SELECT key, value, %s FROM kv WHERE key >= ? AND key < ? ORDER BY key`, raw), jobPrefix, jobEnd)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value, &raw); err != nil {
			return err
		}
		if err := f(key, value, raw); err != nil {
			return err
		}
	}
	return rows.Err()
}

// parseJob reads one background job (claims generation, autumn 2026). A kind
// that we don't know is kept by its own name: it can be parked all the same, and
// whatever session it names in the known ways waits for it.
func parseJob(key, value string) (restart.Job, error) {
	if key == jobPrefix {
		return restart.Job{}, errors.New("its key names no notification")
	}
	type owner struct{ SessionID, ParentSessionID, ChildSessionID string }
	var v *struct {
		owner
		Status   string
		Recovery struct {
			owner
			Kind, Command, Description string
		}
	}
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return restart.Job{}, err
	}
	if v == nil {
		return restart.Job{}, errors.New("its value is null")
	}
	own, all := v.Recovery.owner, v.owner
	job := restart.Job{
		Key: key, Kind: cmp.Or(v.Recovery.Kind, "unknown"), Status: v.Status,
		Child: cmp.Or(own.ChildSessionID, all.ChildSessionID),
		Text:  cmp.Or(v.Recovery.Command, v.Recovery.Description),
	}
	job.Session = cmp.Or(own.SessionID, own.ParentSessionID, all.SessionID, all.ParentSessionID, job.Child)
	return job, nil
}

// object is SQL for the JSON of these columns of a row.
func object(columns []string) string {
	pairs := make([]string, len(columns))
	for i, c := range columns {
		pairs[i] = fmt.Sprintf(`'%s', "%s"`, strings.ReplaceAll(c, `'`, `''`), strings.ReplaceAll(c, `"`, `""`))
	}
	return "json_object(" + strings.Join(pairs, ", ") + ")"
}
