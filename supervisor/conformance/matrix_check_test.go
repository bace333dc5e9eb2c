//go:build linux

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/supervisor/control"
)

// count is what one or many schedules have done.
type count struct {
	Executions, Prompts, Consents, Excused                               int
	Suspended, Pending, Unknown, Resumed, Dismissed, Settled, Faults, In int
	Longest                                                              time.Duration
}

func (n *count) add(m count) {
	n.Executions += m.Executions
	n.Prompts += m.Prompts
	n.Consents += m.Consents
	n.Excused += m.Excused
	n.Suspended += m.Suspended
	n.Pending += m.Pending
	n.Unknown += m.Unknown
	n.Resumed += m.Resumed
	n.Dismissed += m.Dismissed
	n.Settled += m.Settled
	n.Faults += m.Faults
	n.In++
	n.Longest = max(n.Longest, m.Longest)
}

func (n count) String() string {
	return fmt.Sprintf("%d schedules, %d faults; %d executions of %d prompts, %d consents and %d of servers that nobody could keep from it; %d suspended = %d pending (%d of them unknown) + %d resumed + %d dismissed + %d settled; write lock held at most %v",
		n.In, n.Faults, n.Executions, n.Prompts, n.Consents, n.Excused, n.Suspended, n.Pending, n.Unknown, n.Resumed, n.Dismissed, n.Settled, n.Longest)
}

// check holds the promise against what is there, once settled.
func (w *world) check() (n count, broken []string) {
	say := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	w.checkExecutions(&n, say)
	w.checkSuspensions(&n, say)
	if err := poll(8*time.Second, func() (bool, error) { err := w.lost(); return err == nil, err }); err != nil {
		say("lost: %v", err)
	}
	for _, name := range []string{w.database(), w.ledger()} {
		if answer := rows(w.t, name, `PRAGMA integrity_check`); !slices.Equal(answer, []string{"ok"}) {
			say("%s: %v", name, answer)
		}
	}
	servers := func() error {
		pids := w.running(w.program, "serve", "--service")
		if len(pids) != 1 {
			return fmt.Errorf("servers %v", pids)
		}
		return nil
	}
	if err := poll(4*time.Second, func() (bool, error) { err := servers(); return err == nil, err }); err != nil {
		say("%v", err)
	}
	w.checkOutputs(say)
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	n.Longest = w.c.longest
	broken = append(broken, w.c.violations...)
	w.c.violations = nil
	return n, broken
}

func (w *world) ledger() string { return w.path("state", "intermission", "ledger.db") }

// checkExecutions counts what reached the model by session, and holds it against what
// people have asked for. The requests are read first: each comes after its consent.
func (w *world) checkExecutions(n *count, say func(string, ...any)) {
	requests, excused, continued := map[string]int{}, map[string]int{}, map[string]int{}
	for _, line := range w.lines(w.t) {
		var r struct {
			Session, Kind string
			At            int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			say("cannot read a request: %v", err)
			continue
		}
		n.Executions++
		requests[r.Session]++
		if r.Kind == "resume" || r.Kind == "synthetic" {
			continued[r.Session]++
		}
		if r.Kind != "boot" && r.Kind != "job" {
			continue
		}
		if s := w.c.at(r.At); s.foreign && !s.guarded { // it came before anybody stood guard
			excused[r.Session]++
			n.Excused++
			continue
		}
		say("%s was resumed by its server, without consent (%s)", r.Session, line)
	}
	// Of the ones before, what is put back since was not executed.
	refused := map[string]int{}
	for _, id := range rows(w.t, w.ledger(), `SELECT session FROM journal WHERE what = 'refused'`) {
		refused[id]++
	}
	consents := map[string]int{}
	for _, id := range rows(w.t, w.ledger(), `SELECT session FROM journal WHERE what = 'consented' AND detail = ''`) {
		consents[id]++
		n.Consents++
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, executed := range requests {
		if allowed := w.prompts[id] + consents[id] + excused[id]; executed > allowed {
			say("%s: %d executions of %d prompts, %d consents and %d that nobody could prevent", id, executed, w.prompts[id], consents[id], excused[id])
		}
	}
	for id, executed := range continued {
		// A prompt that comes while it is continued is part of that execution.
		if w.prompts[id] == 1 && executed > consents[id]-refused[id] {
			say("%s: continued %d times by %d consents, of which %d were put back", id, executed, consents[id], refused[id])
		}
	}
	for _, prompted := range w.prompts {
		n.Prompts += prompted
	}
}

// checkSuspensions follows each suspension of the ledger to its one end.
func (w *world) checkSuspensions(n *count, say func(string, ...any)) {
	type entry struct {
		Session      string
		At           int64
		What, Detail string
		Open         int
		Phase        string
	}
	made, ends, open := map[string]bool{}, map[string][]string{}, map[string]bool{}
	// One query is one moment.
	for _, row := range rows(w.t, w.ledger(), `
		SELECT json_object('Session', session, 'At', time_suspended, 'What', what, 'Detail', detail) FROM (SELECT * FROM journal ORDER BY seq)
		UNION ALL SELECT json_object('Session', id, 'At', coalesce(time_suspended, consumed), 'Open', 1, 'Phase', phase)
			FROM session WHERE time_suspended IS NOT NULL OR phase <> ''`) {
		var e entry
		if err := json.Unmarshal([]byte(row), &e); err != nil {
			say("cannot read the ledger: %v", err)
			continue
		}
		key := fmt.Sprintf("%s %d", e.Session, e.At)
		switch {
		case e.Open == 1:
			open[key] = true
			n.Pending++
			if e.Phase == "unknown" {
				n.Unknown++
			}
		case e.What == "suspended":
			if made[key] {
				say("%s was suspended twice", key)
			}
			made[key] = true
			n.Suspended++
		case e.What == "unknown": // the one before ends, and this is a new name of it
			var old int64
			if _, err := fmt.Sscanf(e.Detail, "was %d:", &old); err != nil {
				say("%s is unknown, and was: %q", key, e.Detail)
			}
			ends[fmt.Sprintf("%s %d", e.Session, old)] = append(ends[fmt.Sprintf("%s %d", e.Session, old)], "unknown")
			made[key] = true
		case e.What == "delivered":
			ends[key] = append(ends[key], e.What)
			n.Resumed++
		case e.What == "dismissed":
			ends[key] = append(ends[key], e.What)
			n.Dismissed++
		case e.What == "settled":
			ends[key] = append(ends[key], e.What)
			n.Settled++
		}
	}
	for key := range made {
		if len(ends[key]) > 1 || open[key] == (len(ends[key]) == 1) {
			say("%s: ends %v, waits %v", key, ends[key], open[key])
		}
		delete(ends, key)
		delete(open, key)
	}
	if len(ends)+len(open) > 0 {
		say("never suspended, and ended %v or waiting %v", ends, open)
	}
	if n.Suspended != n.Pending+n.Resumed+n.Dismissed+n.Settled {
		say("%d suspended, but %d pending + %d resumed + %d dismissed + %d settled", n.Suspended, n.Pending, n.Resumed, n.Dismissed, n.Settled)
	}
}

// lost is an error when a session's work was cut off, and nobody knows: it isn't at work,
// doesn't wait for consent, and was not dismissed. What was at work only in a server that
// no supervisor of ours has ever met is not ours.
func (w *world) lost() error {
	cut := rows(w.t, w.database(), `SELECT aggregate_id || ' ' || created FROM event e WHERE type LIKE 'session.execution.%'
		AND seq = (SELECT max(seq) FROM event WHERE aggregate_id = e.aggregate_id AND type LIKE 'session.execution.%')
		AND (type LIKE '%.started.%' OR type LIKE '%.interrupted.%' AND json_extract(data, '$.reason') = 'shutdown')`)
	client := control.Dial(w.path("run", "intermission", "intermission.sock"))
	defer client.Close()
	st, err := client.Status(context.Background())
	if err != nil {
		return err
	}
	a, err := w.connect()
	if err != nil {
		return err
	}
	for _, row := range cut {
		id, text, _ := strings.Cut(row, " ")
		began, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		if s := w.c.at(began); s.foreign && !s.seen {
			continue
		}
		if active, err := w.active(a, id, ""); err != nil || active {
			if err == nil && !slices.Contains(st.Sessions.Active, id) {
				err = fmt.Errorf("%s is at work, and the supervisor doesn't know: %v", id, st.Sessions.Active)
			}
			if err != nil {
				return err
			}
			continue
		}
		known := rows(w.t, w.ledger(), `SELECT id FROM session WHERE id = ? AND (time_suspended IS NOT NULL OR phase <> '')`, id)
		last := rows(w.t, w.ledger(), `SELECT what FROM journal WHERE session = ? AND what NOT IN ('parked', 'shown') ORDER BY seq DESC LIMIT 1`, id)
		if len(known) == 0 && !slices.Equal(last, []string{"dismissed"}) {
			return fmt.Errorf("%s was cut off, and waits nowhere; its last word is %v", id, last)
		}
	}
	return nil
}

// checkOutputs looks for what no program should ever write.
func (w *world) checkOutputs(say func(string, ...any)) {
	outs, _ := filepath.Glob(w.path("*.out"))
	logs, _ := filepath.Glob(w.path("state", "intermission", "log", "*"))
	for _, name := range append(outs, logs...) {
		text, err := os.ReadFile(name)
		if err != nil {
			say("%v", err)
		}
		for _, word := range []string{"panic:", "fatal error:", "DATA RACE"} {
			if i := strings.Index(string(text), word); i >= 0 {
				say("%s: %.2000s", filepath.Base(name), text[i:])
			}
		}
	}
}
