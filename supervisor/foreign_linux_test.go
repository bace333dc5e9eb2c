package supervisor

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
	"intermission/supervisor/opencode"
)

// foreign is a server that somebody else started on the same data, without the
// service's lock and registration.
type foreign struct {
	b   *bed
	cmd *exec.Cmd
	url string
}

func (b *bed) foreign() *foreign {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	f := &foreign{b: b, cmd: exec.Command(self, "serve")}
	f.cmd.Env = append(b.o.Environ, asServer+"=1", "OPENCODE_PASSWORD=foreign", "INTERMISSION_DEVSERVER_REQUESTS="+b.dir+"/foreign")
	f.cmd.Dir = b.dir
	out, err := f.cmd.StdoutPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(f.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.t.Fatal(err)
	}
	f.url = strings.TrimSpace(line[strings.Index(line, "http://"):])
	return f
}

func (f *foreign) kill() {
	if f.cmd.ProcessState == nil {
		_ = f.cmd.Process.Kill()
		_ = f.cmd.Wait()
	}
}

// post waits until it has started.
func (f *foreign) post(path string, body, answer any) {
	f.b.t.Helper()
	var status string
	f.b.until("an answer to "+path, func() bool {
		doc, err := json.Marshal(body)
		if err != nil {
			f.b.t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(f.b.t.Context(), http.MethodPost, f.url+path, bytes.NewReader(doc))
		if err != nil {
			f.b.t.Fatal(err)
		}
		req.SetBasicAuth(opencode.Username, "foreign")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			f.b.t.Fatal(err)
		}
		defer resp.Body.Close()
		if status = resp.Status; resp.StatusCode/100 != 2 {
			return false
		}
		return json.NewDecoder(resp.Body).Decode(answer) == nil
	}, func() any { return status })
}

func (f *foreign) prompt(text string) (session string) {
	f.b.t.Helper()
	var made struct{ Data struct{ ID string } }
	f.post("/api/session", map[string]any{"location": map[string]string{"directory": f.b.dir}}, &made)
	f.post("/api/session/"+made.Data.ID+"/prompt", map[string]string{"text": text}, &struct{}{})
	return made.Data.ID
}

// state waits until the session is pending in that state.
func (b *bed) state(id string, want restart.State) (found control.Suspension) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s %s", id, want), func() bool {
		p, err := b.client.Pending(b.t.Context())
		for _, s := range p.Pending {
			if s.ID == id {
				found = s
				return err == nil && s.State == want
			}
		}
		return false
	}, func() any { p, _ := b.client.Pending(b.t.Context()); return p })
	return found
}

// TestASessionOfAForeignServerIsNotOffered: its claim stands in the same database, and
// it makes no progress that would tell, while our server is stopped, or killed, and
// parks. What ours worked on is offered all the same.
func TestASessionOfAForeignServerIsNotOffered(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"stopped", "killed", "supervisor and all"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, nil)
			b.start()
			st := b.phase(Running)
			ours := b.prompt("[[shell sleep 300]]")
			b.atWork(ours)
			other := b.foreign()
			theirs := other.prompt("[[shell sleep 300]]")
			b.until("both are claimed", func() bool { return b.claims() == 2 }, func() any { return b.claims() })
			switch end {
			case "stopped":
				if _, err := b.client.RestartServer(t.Context()); err != nil {
					t.Fatal(err)
				}
			case "killed":
				signal(t, st.Server.PID, platform.Kill)
			default:
				b.stop()
				b.start()
			}
			b.next(st)
			requests := b.requests()
			b.state(ours, restart.StatePending)
			s := b.state(theirs, restart.StateElsewhere)
			if s.Cause != restart.CauseParked || !strings.Contains(s.Reason, "another OpenCode server") {
				t.Errorf("%+v", s)
			}
			if r, err := b.client.Resume(t.Context(), theirs, 0); err != nil || r.Outcome != string(restart.VerdictRefused) || !strings.Contains(r.Reason, "it runs in another OpenCode server") {
				t.Errorf("a click while it works: %+v, %v", r, err)
			}
			d, err := b.client.Show(t.Context(), theirs)
			if err != nil || d.State != restart.StateElsewhere {
				t.Errorf("%+v, %v", d, err)
			}
			b.quiet(requests)
			if end == "stopped" { // the other goes on with it, and ends it
				other.post("/api/session/"+theirs+"/interrupt", struct{}{}, &struct{}{})
				b.waits(ours)
				return
			}
			other.kill() // which writes nothing
			b.state(theirs, restart.StatePending)
			if end == "killed" {
				if n, err := b.client.Dismiss(t.Context(), theirs, 0); err != nil || n.Dismissed != 1 {
					t.Errorf("%+v, %v", n, err)
				}
				b.waits(ours)
				return
			}
			if r, err := b.client.Resume(t.Context(), theirs, 0); err != nil || r.Outcome != string(restart.VerdictResumed) {
				t.Errorf("when the other is gone: %+v, %v", r, err)
			}
			b.atWork(theirs)
		})
	}
}

// claims counts those that stand in the server's database.
func (b *bed) claims() (n int) {
	b.t.Helper()
	db, err := sql.Open("sqlite", "file:"+b.databasePath()+"?_pragma=busy_timeout(5000)")
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM session_v2 WHERE time_suspended IS NOT NULL").Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestAnIdleForeignServerHidesNothing: what events told is ours, whoever has the database open.
func TestAnIdleForeignServerHidesNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.start()
	st := b.phase(Running)
	b.foreign()
	id := b.prompt("[[shell sleep 300]]")
	b.atWork(id)
	signal(t, st.Server.PID, platform.Kill)
	b.next(st)
	b.state(id, restart.StatePending)
	if r, err := b.client.Resume(t.Context(), id, 0); err != nil || r.Outcome != string(restart.VerdictResumed) {
		t.Errorf("%+v, %v", r, err)
	}
}
