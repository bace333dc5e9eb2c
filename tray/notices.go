package tray

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// kind is a kind of notification. Of each at most one is sent in noticePause.
type kind string

const (
	kindPending kind = "pending" // sessions wait for consent
	kindEnded   kind = "ended"   // a session ended at once, failed, or its outcome isn't known
	kindServer  kind = "server"  // the server gave up
	kindStalled kind = "stalled" // a session shows no progress
	kindAct     kind = "act"     // a click didn't do what it said
	kindAbsent  kind = "absent"  // no supervisor runs
)

const (
	noticePause = 30 * time.Second
	// settling is how long what is pending isn't told while a server starts: parking
	// comes first, and one notification should count it all.
	settling = 5 * time.Second
	// missing is how long a supervisor may be away before that is told: one that is
	// restarted is soon back.
	missing   = 10 * time.Second
	maxQueued = 100 // of one kind; more are only counted
	maxNamed  = 3   // sessions that a notification names
)

// item is one fact to be told.
type item struct {
	id   string // session; "" when it is about the server
	at   int64  // suspension, or start of the execution
	what string
	body string // a sentence of its own; "" where the kind has one for all
	name string // of the session
	now  bool   // an answer to a click: quiet hours don't hold it back
}

// queue is what is to be told of one kind.
type queue struct {
	items []item
	more  int       // how many items there was no room for
	after time.Time // not before
}

// notices decides what is told, and when. A value: methods give the next one.
type notices struct {
	queues map[kind]queue
	sent   map[kind]time.Time

	begun  bool
	since  time.Time         // start of the supervisor that was heard last
	seq    int64             // of its latest outcome that was seen
	told   map[string]int64  // pending sessions that were seen, with the suspension's time
	stalls map[string]string // stalled executions that were told
	state  string            // of the server

	toldDown bool      // the last word about the server was that it isn't started any more
	stallsAt time.Time // when the next one would stall; zero for none
	absent   bool      // that there is no supervisor was seen
}

// add queues a fact. Of what is queued already about the same it takes the place.
func (n notices) add(k kind, i item) notices {
	q := n.queues[k]
	same := func(o item) bool { return o.id == i.id && o.at == i.at && o.what == i.what }
	at := slices.IndexFunc(q.items, same)
	switch {
	case at >= 0:
		q.items = slices.Clone(q.items)
		q.items[at] = i
	case len(q.items) >= maxQueued:
		q.more++
	default:
		q.items = append(slices.Clone(q.items), i)
	}
	return n.with(k, q)
}

func (n notices) with(k kind, q queue) notices {
	n.queues = maps.Clone(n.queues)
	if n.queues == nil {
		n.queues = map[kind]queue{}
	}
	n.queues[k] = q
	return n
}

// observe compares a snapshot with what was seen before.
func (n notices) observe(s State) notices {
	n = n.observePending(s)
	n = n.observeOutcomes(s)
	n = n.observeServer(s)
	n.begun = true
	return n
}

func (n notices) observePending(s State) notices {
	seen := make(map[string]int64, len(s.Snapshot.Pending))
	news := false
	for _, p := range s.Snapshot.Pending {
		seen[p.ID] = p.SuspendedAt
		if at, known := n.told[p.ID]; known && at == p.SuspendedAt {
			continue
		}
		if s.changing() { // its user has just said so, and was told how many
			continue
		}
		news = true
		n = n.add(kindPending, item{id: p.ID, at: p.SuspendedAt, name: quote(titleOf(p.Title, p.ID))})
	}
	n.told = seen
	if q := n.queues[kindPending]; news && s.Snapshot.Status.Server.State == "starting" {
		q.after = s.Now.Add(settling)
		n = n.with(kindPending, q)
	} else if s.Snapshot.Status.Server.State != "starting" && !q.after.IsZero() {
		q.after = time.Time{}
		n = n.with(kindPending, q)
	}
	return n
}

// endings words what came of executions.
var endings = map[string]string{
	"ended_at_once": "ended at once, having done nothing",
	"failed":        "failed",
	"refused":       "was not resumed, and stays pending",
	"unknown":       "may have gone on or not: that can't be known",
}

func (n notices) observeOutcomes(s State) notices {
	since := s.Snapshot.Status.Supervisor.Since
	if !since.Equal(n.since) {
		n.since, n.seq = since, 0
	}
	for _, o := range s.Snapshot.Outcomes {
		if o.Seq <= n.seq {
			continue
		}
		n.seq = o.Seq
		if !n.begun || s.answers(o) {
			continue // before our time, or told already
		}
		words, known := endings[o.What]
		if !known {
			words = restart.PlainText(o.What, 20)
		}
		name := quote(titleOf(o.Title, o.ID))
		body := name + " " + words
		if o.Reason != "" {
			body += ": " + sentence(o.Reason)
		}
		n = n.add(kindEnded, item{id: o.ID, at: o.SuspendedAt, body: body, name: name})
	}
	return n
}

func (n notices) observeServer(s State) notices {
	server := s.Snapshot.Status.Server
	if gaveUp(server) && server.State != n.state || n.toldDown && server.State == "running" {
		n = n.add(kindServer, item{})
	}
	n.state = server.State
	return n
}

func gaveUp(s control.ServerStatus) bool { return s.State == "failed" || s.State == "blocked" }

// observeStalls tells once of each session that shows no progress.
func (n notices) observeStalls(s State) notices {
	var stalls map[string]string
	v := view{State: s, clock: clock{now: s.Now}}
	for _, w := range s.Snapshot.Status.Sessions.Working {
		if !v.stalled(w) {
			continue
		}
		if stalls == nil {
			stalls = map[string]string{}
		}
		which := fmt.Sprint(w.StartedAt, " ", w.ProgressAt)
		stalls[w.ID] = which
		if n.stalls[w.ID] == which {
			continue
		}
		name := quote(titleOf(w.Title, w.ID))
		body := fmt.Sprintf("%s has shown no progress for %s. It can be interrupted in the menu.", name, v.age(w.ProgressAt))
		n = n.add(kindStalled, item{id: w.ID, at: w.StartedAt, what: which, body: body, name: name})
	}
	n.stalls, n.stallsAt = stalls, v.next
	return n
}

// observeAbsence tells of a supervisor that is away for longer than a restart takes.
func (n notices) observeAbsence(s State) notices {
	switch {
	case s.Link != Absent:
		n.absent = false
		if _, queued := n.queues[kindAbsent]; queued {
			n.queues = maps.Clone(n.queues)
			delete(n.queues, kindAbsent)
		}
	case !n.absent:
		n.absent = true
		n = n.add(kindAbsent, item{})
		q := n.queues[kindAbsent]
		q.after = s.Now.Add(missing)
		n = n.with(kindAbsent, q)
	}
	return n
}

// send takes what is due out of the queues.
func (n notices) send(s State, effects []Effect) (notices, []Effect) {
	n.stallsAt = time.Time{}
	if s.Link == Linked {
		n = n.observeStalls(s)
	}
	n = n.observeAbsence(s)
	if !s.Notify {
		n.queues = nil
		return n, effects
	}
	s.notices = n
	for _, k := range slices.Sorted(maps.Keys(n.queues)) {
		if due, known := n.due(s, k); !known || due.After(s.Now) {
			continue
		}
		q := n.queues[k]
		n.queues = maps.Clone(n.queues)
		delete(n.queues, k)
		notice, still := compose(s, k, q)
		if !still {
			continue
		}
		n.sent = maps.Clone(n.sent)
		if n.sent == nil {
			n.sent = map[kind]time.Time{}
		}
		n.sent[k] = s.Now
		if k == kindServer {
			n.toldDown = notice.Urgent
		}
		effects = append(effects, Effect{Notice: &notice})
	}
	return n, effects
}

// due is when the queue of a kind may be sent. That isn't known while nobody tells
// what is still true of it.
func (n notices) due(s State, k kind) (due time.Time, known bool) {
	if s.Link != Linked && k != kindAct && k != kindAbsent {
		return due, false
	}
	q := n.queues[k]
	due = q.after
	over := k == kindServer && n.toldDown && s.Snapshot.Status.Server.State == "running" // takes a wrong word back
	if last, sent := n.sent[k]; sent && !over && !last.After(s.Now) {                    // a clock that was set back holds nothing up
		due = later(due, last.Add(noticePause))
	}
	answer := slices.ContainsFunc(q.items, func(i item) bool { return i.now })
	if !answer {
		due = later(due, quietUntil(s.Quiet, later(due, s.Now)))
	}
	return due, true
}

// next is when something becomes due; zero for never.
func (n notices) next(s State) time.Time {
	next := n.stallsAt
	for k := range n.queues {
		if due, known := n.due(s, k); known && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// quietUntil is when the quiet hours that t lies in end; t itself when it lies in none.
func quietUntil(hours []QuietHours, t time.Time) time.Time {
	// Each may end where another has begun. The bound is for hours that cover the day.
	for range len(hours) + 1 {
		end := t
		for _, h := range hours {
			end = later(end, h.until(t))
		}
		if end.Equal(t) {
			return t
		}
		t = end
	}
	return t
}

func (h QuietHours) until(t time.Time) time.Time {
	minute := t.Hour()*60 + t.Minute()
	days := 0
	switch {
	case h.From <= h.To && (minute < h.From || minute >= h.To):
		return t
	case h.From > h.To && minute < h.From && minute >= h.To:
		return t
	case h.From > h.To && minute >= h.From:
		days = 1
	}
	end := time.Date(t.Year(), t.Month(), t.Day()+days, h.To/60, h.To%60, 0, 0, t.Location())
	if end.Hour()*60+end.Minute() < h.To {
		end = end.Add(time.Hour) // that time is left out when summer time begins
	}
	return end
}

// compose words what is still true of a queue.
func compose(s State, k kind, q queue) (notice platform.Notice, still bool) {
	notice = platform.Notice{Kind: string(k), Title: appTitle}
	switch k {
	case kindPending:
		items := slices.DeleteFunc(slices.Clone(q.items), func(i item) bool { return !s.pending(i) })
		return wordPending(s, notice, items), len(items) > 0
	case kindServer:
		server := s.Snapshot.Status.Server
		v := view{State: s, server: server}
		if server.State == "running" { // in place of the word that it isn't
			notice.Title, notice.Body, notice.NoShow = appTitle, v.headline()+" again.", true
			return notice, s.notices.toldDown
		}
		notice.Title, notice.Urgent = "OpenCode is not running", true
		notice.Body = v.headline() + ". " + restart.PlainText(server.Reason, 3*maxReason)
		return notice, gaveUp(server)
	case kindAbsent:
		notice.Title, notice.NoShow = "No supervisor is running", true
		notice.Body = "Until one runs, nothing keeps sessions from going on by themselves. Start it in the menu."
		return notice, s.Link == Absent
	case kindStalled:
		items := slices.DeleteFunc(slices.Clone(q.items), func(i item) bool { return s.notices.stalls[i.id] != i.what })
		notice.Title, notice.Body = "No progress", word(items, q.more)
		return notice, len(items) > 0
	case kindEnded:
		notice.Title, notice.Body, notice.NoShow = "It did not go on", word(q.items, q.more), true
	case kindAct:
		notice.Body, notice.NoShow = word(q.items, q.more), true
	}
	return notice, true
}

// word words facts, a line each.
func word(items []item, more int) string {
	var all []string
	for i, item := range items {
		if i == maxNamed && len(items)-i+more > 1 {
			return strings.Join(append(all, fmt.Sprintf("… and %d more", len(items)-i+more)), "\n")
		}
		all = append(all, item.body)
	}
	return strings.Join(all, "\n")
}

// pending says that this very suspension waits for consent.
func (s State) pending(i item) bool {
	return slices.ContainsFunc(s.Snapshot.Pending, func(p control.Suspension) bool {
		return p.ID == i.id && p.SuspendedAt == i.at && p.State != restart.StateQueued && p.State != restart.StateResuming
	})
}

// wordPending counts all that is pending, and names what is new.
func wordPending(s State, notice platform.Notice, items []item) platform.Notice {
	n := s.Snapshot.Status.Sessions.Pending
	notice.Title = count(n, "session waits for you", "sessions wait for you")
	notice.Body = "Nothing was resumed."
	var names []string
	for _, i := range items {
		names = append(names, i.name)
	}
	switch {
	case len(items) < n:
		notice.Body = fmt.Sprintf("New: %s. Nothing was resumed.", and(names, maxNamed))
	case n <= maxNamed:
		notice.Body = fmt.Sprintf("%s. Nothing was resumed.", and(names, maxNamed))
	}
	return notice
}
