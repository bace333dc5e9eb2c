package opencode

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"intermission/restart"
)

const (
	shellJob = `{"id":"j1","notificationID":"n1","status":"completed","recovery":{"kind":"shell","sessionID":"ses_1","shellID":"sh_1","command":"make \"all\" <x>"}}`
	agentJob = `{"id":"j2","notificationID":"n2","status":"running","recovery":{"kind":"subagent","parentSessionID":"ses_1","childSessionID":"ses_2","agent":"general","description":"look for it"}}`
)

func TestSweepFindsAllThatWouldResume(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindClaims)
	s.exec(`ALTER TABLE session_v2 ADD claim_owner TEXT`)
	s.exec(`ALTER TABLE session_v2 ADD claim_pid INTEGER`)
	s.session("ses_1", "time_suspended = 1790000000000, resume_attempts = 3, claim_owner = 'me', claim_pid = 42")
	s.session("ses_2", "time_suspended = 1790000000001, parent_id = 'ses_1'")
	s.session("ses_3", "time_suspended = 1790000000002, time_archived = 5")
	s.session("ses_idle", "")
	s.job("n1", shellJob)
	s.job("n2", agentJob)
	s.job("n3", `{"status":"running","recovery":{"kind":"cron"}}`)
	s.job("n4", `{"status":"error"}`)
	s.job("n5", `{"status":"running","recovery":{"kind":"cron","sessionID":"ses_1"}}`)
	s.job("n6", `{"status":"running","sessionID":"ses_1"}`)
	s.job("n7", `{"status":"running","parentSessionID":"ses_1","childSessionID":"ses_2","recovery":{"kind":"swarm","description":"many"}}`)
	s.job("n8", `{"status":"running","recovery":{"kind":"subagent","childSessionID":"ses_2"}}`)
	s.exec(`INSERT INTO kv VALUES ('job.background', 'not a job', 0, 0), ('job.background0', 'nor this', 0, 0), ('JOB.BACKGROUND/x', 'nor', 0, 0)`)

	sweep, err := s.open(V2).Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var raws []string
	for i := range sweep.Claims {
		raws = append(raws, string(sweep.Claims[i].Raw))
		sweep.Claims[i].Raw = nil
	}
	for i := range sweep.Jobs {
		raws = append(raws, string(sweep.Jobs[i].Raw))
		sweep.Jobs[i].Raw = nil
	}
	want := restart.Sweep{
		Claims: []restart.Claim{
			{Session: "ses_1", ClaimedAt: 1790000000000, Attempts: 3},
			{Session: "ses_2", ClaimedAt: 1790000000001, Parent: "ses_1"},
			{Session: "ses_3", ClaimedAt: 1790000000002},
		},
		Jobs: []restart.Job{
			{Key: "job.background/n1", Kind: "shell", Session: "ses_1", Text: `make "all" <x>`, Status: "completed"},
			{Key: "job.background/n2", Kind: "subagent", Session: "ses_1", Child: "ses_2", Text: "look for it", Status: "running"},
			{Key: "job.background/n3", Kind: "cron", Status: "running"},
			{Key: "job.background/n4", Kind: "unknown", Status: "error"},
			{Key: "job.background/n5", Kind: "cron", Session: "ses_1", Status: "running"},
			{Key: "job.background/n6", Kind: "unknown", Session: "ses_1", Status: "running"},
			{Key: "job.background/n7", Kind: "swarm", Session: "ses_1", Child: "ses_2", Text: "many", Status: "running"},
			{Key: "job.background/n8", Kind: "subagent", Session: "ses_2", Child: "ses_2", Status: "running"},
		},
	}
	if diff := cmp.Diff(want, sweep); diff != "" {
		t.Error(diff)
	}
	if want := `{"id":"ses_1","parent_id":null,"time_suspended":1790000000000,"claim_owner":"me","claim_pid":42,"resume_attempts":3}`; raws[0] != want {
		t.Errorf("raw claim %s", raws[0])
	}
	var row map[string]any
	if err := json.Unmarshal([]byte(raws[3]), &row); err != nil || row["value"] != shellJob || row["time_created"] != 3.0 {
		t.Errorf("raw job %s, %v", raws[3], err)
	}
}

func TestSweepIsEmptyForV1(t *testing.T) {
	t.Parallel()
	s := newServer(t, KindEarly) // a preview left its marks in a file that v1 runs on
	s.session("ses_1", "time_suspended = 7")
	s.job("n1", shellJob)
	sweep, err := s.open(V1).Sweep(t.Context())
	if err != nil || len(sweep.Claims)+len(sweep.Jobs) != 0 {
		t.Errorf("%v, %v", sweep, err)
	}
}

func TestSweepFailsClosed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, names string }{
		"job is no JSON":        {`INSERT INTO kv VALUES ('job.background/n1', '{"status":', 0, 0)`, `job.background/n1`},
		"job is null":           {`INSERT INTO kv VALUES ('job.background/n1', 'null', 0, 0)`, `job.background/n1`},
		"job is a list":         {`INSERT INTO kv VALUES ('job.background/n1', '[]', 0, 0)`, `job.background/n1`},
		"job's kind is a count": {`INSERT INTO kv VALUES ('job.background/n1', '{"recovery":{"kind":1}}', 0, 0)`, `job.background/n1`},
		"job without a name":    {`INSERT INTO kv VALUES ('job.background/', '{}', 0, 0)`, `job.background/`},
		"claim is a text":       {`UPDATE session_v2 SET time_suspended = 'yesterday'`, `session_v2.time_suspended of ses_1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, KindClaims)
			s.session("ses_1", "")
			s.exec(c.change)
			sweep, err := s.open(V2).Sweep(t.Context())
			var unknown *UnknownShapeError
			if !errors.As(err, &unknown) || !strings.Contains(err.Error(), c.names) {
				t.Errorf("got %v, %v", sweep, err)
			}
		})
	}
}
