package devserver

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
)

// long is a turn that outlasts every test.
const long = "[[slow n=10000 ms=20]]"

// TestSweepResumes is the fault that the product exists for: a server that is
// started alone goes on with what it finds.
func TestSweepResumes(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			slow, fast := p.begin("long work "+long), p.begin("hello")
			p.settle(fast)
			p.stop()
			u.exec(`UPDATE {session} SET time_archived = 1, time_suspended = 1000 WHERE id = ?`, slow) // neither archive nor age counts
			before, idle := u.requestsOf(slow), u.requestsOf(fast)
			p = u.start()
			u.eventually("the session is resumed by itself", func() bool { return u.requestsOf(slow) > before })
			if _, running := p.actives()[slow]; !running {
				t.Error("the resumed session is not active")
			}
			if n := u.requestsOf(fast); n != idle {
				t.Errorf("the finished session executed: %d requests, want %d", n, idle)
			}
		})
	}
}

// TestParkedIsNotResumed: with the column cleared, nothing is asked of the provider.
func TestParkedIsNotResumed(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			id, witness := p.begin(long), p.begin(long)
			p.stop()
			u.exec(`UPDATE {session} SET time_suspended = NULL WHERE id = ?`, id)
			before := u.requestsOf(id)
			p = u.start()
			u.eventually("the sweep is over", func() bool { return u.requestsOf(witness) > 1 })
			if n := u.requestsOf(id); n != before {
				t.Errorf("%d requests, want %d", n, before)
			}
			if _, running := p.actives()[id]; running {
				t.Error("the parked session is active")
			}
		})
	}
}

// TestSweepAtOnce: the early kind resumes four at a time and consumes; the claims kind all.
func TestSweepAtOnce(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			ids := []string{}
			for i := range 7 {
				ids = append(ids, p.begin(fmt.Sprint(i, long)))
			}
			p.stop()
			p = u.start()
			want := map[kind]int{early: 4, claims: 7}[k]
			u.eventually("the sweep is at its limit", func() bool { return len(p.actives()) == want })
			left := 0
			for _, id := range ids {
				if u.suspended(id) {
					left++
				}
			}
			if expect := map[kind]int{early: 3, claims: 7}[k]; left != expect {
				t.Errorf("%d suspensions or claims left, want %d", left, expect)
			}
			if k == early { // one more when one ends
				for id := range p.actives() {
					p.want(204, "POST", "/api/session/"+id+"/interrupt", nil, nil)
					break
				}
				u.eventually("the next is resumed", func() bool { return len(u.requests()) == 7+5 })
			}
		})
	}
}

// TestSweepGivesUp: one turn is resumed ten times, and then no more.
func TestSweepGivesUp(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	worn, fresh := p.begin(long), p.begin(long)
	p.signal(syscall.SIGKILL)
	u.exec(`UPDATE {session} SET resume_attempts = 9 WHERE id = ?`, worn)
	p = u.start()
	u.eventually("the tenth resume", func() bool { return u.requestsOf(worn) == 2 && u.requestsOf(fresh) == 2 })
	if got := u.get(`SELECT resume_attempts FROM {session} WHERE id = ?`, fresh); got != "1" {
		t.Errorf("%s attempts are counted, want 1", got)
	}
	p.signal(syscall.SIGKILL)
	u.start()
	u.eventually("the sweep", func() bool { return u.requestsOf(fresh) == 3 })
	u.eventually("the claim is given up", func() bool { return !u.suspended(worn) })
	if n := u.requestsOf(worn); n != 2 {
		t.Errorf("%d requests: an eleventh resume", n)
	}
}

func (u *user) putJob(j job) {
	u.t.Helper()
	value, err := json.Marshal(j)
	if err != nil {
		u.t.Fatal(err)
	}
	u.exec(`INSERT INTO kv (key, value, time_created, time_updated) VALUES (?, ?, 0, 0)`, jobPrefix+j.NotificationID, string(value))
}

func (u *user) jobRows() string {
	u.t.Helper()
	return u.get(`SELECT count(*) FROM kv WHERE key LIKE 'job.background/%'`)
}

// TestSweepActsOnJobs: every row acts, whatever the claims say.
func TestSweepActsOnJobs(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	parent, shell, over := p.begin("[[background "+long+"]]"), p.begin("hello"), p.begin("hello")
	for _, id := range []string{parent, shell, over} {
		p.settle(id)
	}
	var list struct{ Data []sessionInfo }
	p.want(200, "GET", "/api/session?parentID="+parent, nil, &list)
	if len(list.Data) != 1 {
		t.Fatalf("%d children", len(list.Data))
	}
	child := list.Data[0].ID
	if u.jobRows() != "1" {
		t.Fatalf("%s job rows", u.jobRows())
	}
	p.signal(syscall.SIGKILL)
	u.putJob(job{ID: "a", NotificationID: "msg_notice1", Status: "running", Recovery: recovery{Kind: kindShell, SessionID: shell, ShellID: "sh_1", Command: "touch again"}})
	u.putJob(job{ID: "b", NotificationID: "msg_notice2", Status: "completed", Recovery: recovery{Kind: kindShell, SessionID: over, ShellID: "sh_2", Command: "true"}})
	if u.suspended(parent) || !u.suspended(child) {
		t.Errorf("claims: parent %v, child %v; want only the child's", u.suspended(parent), u.suspended(child))
	}
	counts := map[string]int{child: u.requestsOf(child), shell: u.requestsOf(shell), over: u.requestsOf(over), parent: u.requestsOf(parent)}
	p = u.start()
	for _, id := range []string{child, shell, over} {
		u.eventually("the row acts", func() bool { return u.requestsOf(id) > counts[id] })
	}
	if u.requestsOf(parent) != counts[parent] {
		t.Error("the idle parent was woken before its child ended")
	}
	u.eventually("the shell rows are gone", func() bool { return u.jobRows() == "1" })
	p.want(200, "POST", "/api/session/"+child+"/interrupt", nil, nil)
	u.eventually("the parent is told, and woken", func() bool { return u.requestsOf(parent) > counts[parent] })
	u.eventually("the last row is gone", func() bool { return u.jobRows() == "0" })
}

// TestSweepClearsChildClaims: a child in the foreground is its parent's to run again.
func TestSweepClearsChildClaims(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	parent := p.begin("[[subagent " + long + "]]")
	var list struct{ Data []sessionInfo }
	u.eventually("the child is at work", func() bool {
		p.want(200, "GET", "/api/session?parentID="+parent, nil, &list)
		return len(list.Data) == 1 && u.requestsOf(list.Data[0].ID) == 1
	})
	child := list.Data[0].ID
	p.stop()
	if !u.suspended(parent) || !u.suspended(child) {
		t.Fatal("both are claimed after a graceful stop")
	}
	u.start()
	u.eventually("the parent is resumed", func() bool { return u.requestsOf(parent) == 2 })
	if u.suspended(child) || u.requestsOf(child) != 1 {
		t.Error("the child's claim acted")
	}
}

// TestPlainServeNeverSweeps: no lock, no registration, no sweep.
func TestPlainServeNeverSweeps(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k, "OPENCODE_PASSWORD=secret")
			p := u.start()
			id := p.begin(long)
			p.stop()
			q := u.plain("secret")
			if q.reg.Password == p.reg.Password {
				t.Error("a plain server has the service's password")
			}
			if _, err := readRegistration(u.settings().registration); err == nil {
				t.Error("a plain server is registered")
			}
			u.start() // not hindered by a lock
			u.eventually("the service sweeps", func() bool { return u.requestsOf(id) == 2 })
			if n := len(q.actives()); n != 0 {
				t.Errorf("%d sessions are active in the plain server", n)
			}
		})
	}
}
