package devserver

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
)

const (
	earlyAtOnce = 4  // the early kind resumes so many sessions at once
	maxAttempts = 10 // the claims kind resumes one turn so often
)

// restartText is what the early kind tells a session that it resumes.
const restartText = "continue from where you left off, do not repeat completed work"

// sweep is what this product exists for: at start, the server resumes every
// unfinished session by itself, with no question asked. It looks at neither owner,
// age nor time_archived.
func (s *server) sweep() {
	var err error
	if s.set.kind == early {
		err = s.sweepSuspended()
	} else {
		err = s.sweepClaims()
	}
	if err != nil && s.work.Err() == nil {
		s.complain(fmt.Errorf("cannot resume sessions: %w", err))
	}
}

// sweepSuspended consumes suspensions, at most four executing at once. Those that
// the server didn't come to stay suspended.
func (s *server) sweepSuspended() error {
	ids, err := s.claimed()
	if err != nil {
		return err
	}
	places := make(chan struct{}, earlyAtOnce)
	var turns sync.WaitGroup
	defer turns.Wait()
	for _, id := range ids {
		select {
		case places <- struct{}{}:
		case <-s.work.Done():
			return nil
		}
		e, err := s.consume(id)
		if err != nil {
			return err
		}
		if e == nil {
			<-places
			continue
		}
		turns.Go(func() {
			<-e.done
			<-places
		})
	}
	return nil
}

// consume takes one suspension and resumes its session; nil when it is gone.
func (s *server) consume(id string) (*execution, error) {
	var taken int64
	err := s.store.write(context.Background(), func(tx *sql.Tx) error {
		res, err := tx.Exec(`UPDATE session SET time_suspended = NULL WHERE id = ? AND time_suspended IS NOT NULL`, id)
		if err != nil {
			return err
		}
		taken, err = res.RowsAffected()
		return err
	})
	if err != nil || taken == 0 {
		return nil, err
	}
	session, err := s.session(id)
	if err != nil {
		return nil, err
	}
	if _, err := s.admit(session, input{Type: "synthetic", Text: restartText}); err != nil {
		return nil, err
	}
	return s.wake(id, "boot"), nil
}

// sweepClaims resumes every claimed root at once and acts on every background job.
// The claims of child sessions are cleared, but for those that a running job resumes.
func (s *server) sweepClaims() error {
	jobs, err := s.jobs()
	if err != nil {
		return err
	}
	if err := s.clearChildClaims(jobs); err != nil {
		return err
	}
	ids, err := s.claimed()
	if err != nil {
		return err
	}
	for _, id := range ids {
		again, err := s.countAttempt(id)
		if err != nil {
			return err
		}
		if again {
			s.wake(id, "boot")
		}
	}
	for _, j := range jobs {
		if j.Recovery.Kind == kindSubagent && j.Status == "running" {
			if e := s.wake(j.Recovery.ChildSessionID, "job"); e != nil {
				s.watchChild(j, e)
			}
			continue
		}
		if err := s.notify(j); err != nil {
			return err
		}
	}
	return nil
}

// claimed gives the roots that are claimed or suspended, by time.
func (s *server) claimed() ([]string, error) {
	var ids []string
	err := s.store.read(func(db *sql.DB) error {
		rows, err := db.Query(s.store.sql(`SELECT id FROM {session} WHERE time_suspended IS NOT NULL AND parent_id IS NULL ORDER BY time_suspended`))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	})
	return ids, err
}

// countAttempt counts one more resume of a claimed turn; after ten the claim is given up.
func (s *server) countAttempt(id string) (again bool, err error) {
	err = s.store.write(context.Background(), func(tx *sql.Tx) error {
		var attempts int
		if err := tx.QueryRow(`SELECT resume_attempts FROM session_v2 WHERE id = ?`, id).Scan(&attempts); err != nil {
			return err
		}
		again = attempts < maxAttempts
		if !again {
			_, err := tx.Exec(`UPDATE session_v2 SET time_suspended = NULL, resume_attempts = 0 WHERE id = ?`, id)
			return err
		}
		_, err := tx.Exec(`UPDATE session_v2 SET resume_attempts = resume_attempts + 1 WHERE id = ?`, id)
		return err
	})
	return again, err
}

func (s *server) clearChildClaims(jobs []job) error {
	keep := map[string]bool{}
	for _, j := range jobs {
		if j.Status == "running" {
			keep[j.Recovery.ChildSessionID] = true
		}
	}
	return s.store.write(context.Background(), func(tx *sql.Tx) error {
		rows, err := tx.Query(`SELECT id FROM session_v2 WHERE time_suspended IS NOT NULL AND parent_id IS NOT NULL`)
		if err != nil {
			return err
		}
		defer rows.Close()
		var clear []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			if !keep[id] {
				clear = append(clear, id)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, id := range clear {
			if _, err := tx.Exec(`UPDATE session_v2 SET time_suspended = NULL, resume_attempts = 0 WHERE id = ?`, id); err != nil {
				return err
			}
		}
		return nil
	})
}
