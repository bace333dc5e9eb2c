package devserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
)

// The kinds of background jobs, as they stand in the database.
const (
	kindShell    = "shell"
	kindSubagent = "subagent"
)

// jobPrefix begins the key of a background job's row; its notification id follows.
const jobPrefix = "job.background/"

// job is a row that makes the claims kind act at its next start.
type job struct {
	ID             string   `json:"id"`
	NotificationID string   `json:"notificationID"`
	Status         string   `json:"status"` // running, completed, error, cancelled
	Recovery       recovery `json:"recovery"`
}

// recovery says what a job was, so that another incarnation can take it up.
type recovery struct {
	Kind string `json:"kind"`

	SessionID string `json:"sessionID,omitempty"` // shell
	ShellID   string `json:"shellID,omitempty"`
	Command   string `json:"command,omitempty"`

	ParentSessionID string `json:"parentSessionID,omitempty"` // a child session
	ChildSessionID  string `json:"childSessionID,omitempty"`
	Agent           string `json:"agent,omitempty"`
	Description     string `json:"description,omitempty"`
}

// owner is the session that is told of the job's end.
func (j job) owner() string {
	if j.Recovery.Kind == kindSubagent {
		return j.Recovery.ParentSessionID
	}
	return j.Recovery.SessionID
}

func (s *server) newJob(r recovery) job {
	return job{ID: s.ids.next("job"), NotificationID: s.ids.next("msg"), Status: "running", Recovery: r}
}

// saveJob writes the job's row. The early kind keeps none.
func (s *server) saveJob(j job) error {
	if s.set.kind == early {
		return nil
	}
	value, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return s.record(func(r *recorder) error {
		_, err := r.Exec(`INSERT INTO kv (key, value, time_created, time_updated) VALUES (?, ?, ?, ?)
			ON CONFLICT (key) DO UPDATE SET value = excluded.value, time_updated = excluded.time_updated`,
			jobPrefix+j.NotificationID, string(value), r.now, r.now)
		return err
	})
}

// jobs reads every row.
func (s *server) jobs() ([]job, error) {
	var list []job
	err := s.store.read(func(db *sql.DB) error {
		rows, err := db.Query(`SELECT value FROM kv WHERE substr(key, 1, ?) = ? ORDER BY key`, len(jobPrefix), jobPrefix)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var value string
			var j job
			if err := rows.Scan(&value); err != nil {
				return err
			}
			if err := json.Unmarshal([]byte(value), &j); err != nil {
				s.complain(err)
				continue
			}
			list = append(list, j)
		}
		return rows.Err()
	})
	return list, err
}

// startShellJob runs command in the background and gives the id of its shell.
func (s *server) startShellJob(session sessionInfo, command string) (string, error) {
	shell := s.ids.next("sh")
	j := s.newJob(recovery{Kind: kindShell, SessionID: session.ID, ShellID: shell, Command: command})
	if err := s.saveJob(j); err != nil {
		return "", err
	}
	s.background.Go(func() {
		_, exit, err := runShell(s.work, session.Location.Directory, command)
		j.Status = "completed"
		if err != nil || exit != 0 {
			j.Status = "error"
		}
		s.jobEnded(j)
	})
	return shell, nil
}

// startChildJob lets a child session do prompt in the background.
func (s *server) startChildJob(parent sessionInfo, prompt string) (string, error) {
	child, e, err := s.startChild(parent, prompt)
	if err != nil {
		return "", err
	}
	j := s.newJob(recovery{Kind: kindSubagent, ParentSessionID: parent.ID, ChildSessionID: child.ID,
		Agent: "general", Description: titleOf(prompt)})
	if err := s.saveJob(j); err != nil {
		return "", err
	}
	s.watchChild(j, e)
	return child.ID, nil
}

func (s *server) watchChild(j job, e *execution) {
	s.background.Go(func() {
		<-e.done
		j.Status = "completed"
		s.jobEnded(j)
	})
}

// jobEnded records the end of a job and tells its session, which wakes it. A job
// that the shutdown ended stays as it is, for the next incarnation.
func (s *server) jobEnded(j job) {
	if s.work.Err() != nil {
		return
	}
	if err := errors.Join(s.saveJob(j), s.notify(j)); err != nil {
		s.complain(err)
	}
}

// notify posts a notice of the job to its session, wakes it, and forgets the job.
func (s *server) notify(j job) error {
	session, err := s.session(j.owner())
	if err == nil {
		what := j.Recovery.Command + j.Recovery.Description
		_, err = s.admit(session, input{ID: j.NotificationID, Type: "synthetic", Description: "Background job " + j.Status,
			Text: "Background job (" + strings.TrimSpace(what) + ") is " + j.Status + "."})
	}
	var missing *notFoundError
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	if err == nil {
		s.wake(session.ID, "job")
	}
	return s.store.write(context.Background(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM kv WHERE key = ?`, jobPrefix+j.NotificationID)
		return err
	})
}
