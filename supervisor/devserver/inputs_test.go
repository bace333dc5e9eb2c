package devserver

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
)

// TestPromptIsIdempotent: the id of a prompt counts once, over a restart too.
func TestPromptIsIdempotent(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			id := p.session()
			path, body := "/api/session/"+id+"/prompt", data{"id": "msg_1", "text": "hello"}
			var first, again struct{ Data admitted }
			p.want(200, "POST", path, body, &first)
			p.settle(id)
			p.want(200, "POST", path, body, &again)
			if first.Data.AdmittedSeq != again.Data.AdmittedSeq || first.Data.TimeCreated != again.Data.TimeCreated || again.Data.ID != "msg_1" {
				t.Errorf("answers differ: %+v, %+v", first.Data, again.Data)
			}
			p.want(409, "POST", path, data{"id": "msg_1", "text": "other"}, nil)
			p.want(409, "POST", "/api/session/"+p.session()+"/prompt", body, nil)
			p.signal(syscall.SIGKILL)
			p = u.start()
			p.want(200, "POST", path, body, nil)
			p.settle(id)
			if n := u.requestsOf(id); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			if n := len(p.messages(id)); n != 2 {
				t.Errorf("%d messages, want 2", n)
			}
		})
	}
}

// TestSyntheticID: an idempotency key in the claims kind only.
func TestSyntheticID(t *testing.T) {
	t.Parallel()
	for k, want := range map[kind]int{early: 2, claims: 1} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			id := p.session()
			for range 2 {
				p.want(200, "POST", "/api/session/"+id+"/synthetic", data{"id": "msg_1", "text": "go on"}, nil)
				p.settle(id)
			}
			if n := u.requestsOf(id); n != want {
				t.Errorf("%d requests, want %d", n, want)
			}
		})
	}
}

// TestInputs: what runs the model, and what doesn't.
func TestInputs(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.session()
	p.want(200, "POST", "/api/session/"+id+"/prompt", data{"id": "msg_1", "text": "later", "resume": false}, nil)
	p.settle(id)
	if n := u.requestsOf(id); n != 0 {
		t.Errorf("resume false: %d requests", n)
	}
	p.want(404, "GET", "/api/session/"+id+"/message/msg_1", nil, nil) // waits to be promoted
	p.want(200, "POST", "/api/session/"+id+"/prompt", data{"text": ""}, nil)
	p.settle(id)
	p.want(200, "GET", "/api/session/"+id+"/message/msg_1", nil, nil)
	if n := u.requestsOf(id); n != 1 {
		t.Errorf("an empty prompt: %d requests, want 1", n)
	}
	busy := p.begin("[[slow n=10 ms=10]]")
	p.prompt(busy, "and this")
	p.settle(busy)
	u.eventually("what came meanwhile is answered", func() bool { return u.requestsOf(busy) == 2 && len(p.actives()) == 0 })
}

// TestResume waits until the execution has settled, and leaves no trace of its own.
func TestResume(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.begin("[[slow n=30 ms=20]]")
	p.stop()
	u.exec(`UPDATE {session} SET time_suspended = NULL`)
	p = u.start()
	p.want(204, "POST", "/api/session/"+id+"/resume", nil, nil)
	if len(p.actives()) != 0 {
		t.Error("answered before it settled")
	}
	list := p.messages(id)
	if len(list) != 3 || list[2]["finish"] != "stop" {
		t.Errorf("the history is %v", list)
	}
	if all := words(list[1]) + words(list[2]); all != 30 {
		t.Errorf("%d words in two parts, want 30", all)
	}
}

// TestResumeAtStop: a resume that a stop cuts short is not answered as settled.
func TestResumeAtStop(t *testing.T) {
	t.Parallel()
	u := newUser(t, claims)
	p := u.start()
	id := p.begin(long)
	p.want(200, "POST", "/api/session/"+id+"/interrupt", nil, nil)
	answered := make(chan string, 1)
	go func() {
		status, _, err := p.try("POST", "/api/session/"+id+"/resume", nil)
		answered <- fmt.Sprint(status, err != nil)
	}()
	u.eventually("it executes", func() bool { return u.requestsOf(id) == 2 })
	p.stop()
	if got := <-answered; got != "0 true" {
		t.Errorf("answered %s, want a broken connection", got)
	}
}

// TestUserInterrupt ends a turn for good.
func TestUserInterrupt(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			id := p.begin(long)
			status, answer, err := p.try("POST", "/api/session/"+id+"/interrupt", nil)
			want, body := http.StatusOK, `{"interrupted":true}`
			if k == early {
				want, body = http.StatusNoContent, ""
			}
			if err != nil || status != want || string(answer) != body {
				t.Errorf("%d %s %v", status, answer, err)
			}
			if got := u.lastEvent(id); got != "interrupted.1 user" {
				t.Errorf("the last event is %q", got)
			}
			p.stop()
			if u.suspended(id) {
				t.Error("an interrupted session is suspended at the stop")
			}
		})
	}
}

// TestWaiting: a permission and a question hold a turn until they are answered.
func TestWaiting(t *testing.T) {
	t.Parallel()
	for _, k := range both {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			u := newUser(t, k)
			p := u.start()
			question, reply := "question", data{"answers": [][]string{{"left"}}}
			if k == claims {
				question, reply = "form", data{"answer": data{"way": "left"}}
			}
			for kind, ask := range map[string]struct {
				script string
				reply  data
			}{"permission": {"[[permission]]", data{"reply": "once"}}, question: {"[[question]]", reply}} {
				id := p.begin(ask.script)
				path := "/api/session/" + id + "/" + kind
				var list struct{ Data []struct{ ID string } }
				u.eventually("it asks", func() bool {
					p.want(200, "GET", path, nil, &list)
					return len(list.Data) == 1
				})
				if _, running := p.actives()[id]; !running {
					t.Error("a session that waits is not active")
				}
				p.want(204, "POST", path+"/"+list.Data[0].ID+"/reply", ask.reply, nil)
				p.settle(id)
				p.want(200, "GET", path, nil, &list)
				if len(list.Data) != 0 || u.lastEvent(id) != "succeeded.1" {
					t.Errorf("%s: %d left, last event %s", kind, len(list.Data), u.lastEvent(id))
				}
			}
		})
	}
}
