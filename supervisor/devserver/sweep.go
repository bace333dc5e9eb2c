package devserver

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
)

const (
	earlyAtOnce = 4  // the early kind resumes so many sessions at once
	maxAttempts = 10 // the claims kind resumes one turn so often
)

// restartText is what the early kind tells a session that it resumes.
const restartText = "continue from where you left off, do not repeat completed work"

// claim is what makes a session resume at start.
type claim struct {
	session string
	at      int64 // time_suspended, Unix milliseconds
	child   bool
}

// leftovers is what the incarnation before left unfinished. It is read before the
// first request is served, so that turns of this incarnation are not among it.
type leftovers struct {
	claims []claim
	jobs   []job
}

func (s *server) leftovers() (found leftovers, err error) {
	err = s.store.read(func(db *sql.DB) error {
		rows, err := db.Query(s.store.sql(`SELECT id, time_suspended, parent_id IS NOT NULL FROM {session}
			WHERE time_suspended IS NOT NULL ORDER BY time_suspended`))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var c claim
			if err := rows.Scan(&c.session, &c.at, &c.child); err != nil {
				return err
			}
			found.claims = append(found.claims, c)
		}
		return rows.Err()
	})
	if err == nil && s.set.kind == claims {
		found.jobs, err = s.jobs()
	}
	return found, err
}

// sweep is what this product exists for: at start, the server resumes every
// unfinished session by itself, with no question asked. It looks at neither owner,
// age nor time_archived. What was taken away since it was found is left alone.
func (s *server) sweep(found leftovers) {
	var err error
	if s.set.kind == early {
		err = s.sweepSuspended(found)
	} else {
		err = s.sweepClaims(found)
	}
	if err != nil && s.work.Err() == nil {
		s.complain(fmt.Errorf("cannot resume sessions: %w", err))
	}
}

// sweepSuspended consumes the suspensions of roots, at most four executing at
// once. Those that the server didn't come to stay suspended.
func (s *server) sweepSuspended(found leftovers) error {
	places := make(chan struct{}, earlyAtOnce)
	var turns sync.WaitGroup
	defer turns.Wait()
	for _, c := range found.claims {
		if c.child {
			continue
		}
		select {
		case places <- struct{}{}:
		case <-s.work.Done():
			return nil
		}
		e, err := s.consume(c)
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
func (s *server) consume(c claim) (*execution, error) {
	taken, err := s.update(c, `time_suspended = NULL`)
	if err != nil || !taken {
		return nil, err
	}
	session, err := s.session(c.session)
	if err != nil {
		return nil, err
	}
	if _, err := s.admit(session, input{Type: "synthetic", Text: restartText}); err != nil {
		return nil, err
	}
	return s.wake(c.session, "boot"), nil
}

// update changes the session of a claim, if that claim still stands.
func (s *server) update(c claim, set string) (done bool, err error) {
	err = s.store.write(context.Background(), func(tx *sql.Tx) error {
		res, err := tx.Exec(s.store.sql(`UPDATE {session} SET `+set+` WHERE id = ? AND time_suspended = ?`), c.session, c.at)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		done = n > 0
		return err
	})
	return done, err
}

// sweepClaims resumes every claimed root at once and acts on every background job.
// The claims of child sessions are cleared, but for those that a running job resumes.
func (s *server) sweepClaims(found leftovers) error {
	for _, c := range found.claims {
		resumedByJob := slices.ContainsFunc(found.jobs, func(j job) bool {
			return j.Status == "running" && j.Recovery.ChildSessionID == c.session
		})
		switch {
		case !c.child:
			if err := s.resumeClaim(c); err != nil {
				return err
			}
		case !resumedByJob:
			if _, err := s.update(c, `time_suspended = NULL, resume_attempts = 0`); err != nil {
				return err
			}
		}
	}
	for _, j := range found.jobs {
		if err := s.actOn(j); err != nil {
			return err
		}
	}
	return nil
}

// resumeClaim counts one more resume of a claimed turn, and resumes it; after ten the claim is given up.
func (s *server) resumeClaim(c claim) error {
	again, err := s.update(c, fmt.Sprintf(`resume_attempts = CASE WHEN resume_attempts < %d THEN resume_attempts + 1 ELSE 0 END,
		time_suspended = CASE WHEN resume_attempts < %[1]d THEN time_suspended END`, maxAttempts))
	if err != nil || !again {
		return err
	}
	if again, err = s.update(c, `time_suspended = time_suspended`); again { // it was not given up
		s.wake(c.session, "boot")
	}
	return err
}

// actOn resumes a running child session even when its parent is idle, and posts a
// notice of any other job, which wakes its session.
func (s *server) actOn(j job) error {
	var there bool
	err := s.store.read(func(db *sql.DB) error {
		return db.QueryRow(`SELECT count(*) > 0 FROM kv WHERE key = ?`, jobPrefix+j.NotificationID).Scan(&there)
	})
	if err != nil || !there {
		return err
	}
	if j.Recovery.Kind != kindSubagent || j.Status != "running" {
		return s.notify(j)
	}
	if e := s.wake(j.Recovery.ChildSessionID, "job"); e != nil {
		s.watchChild(j, e)
	}
	return nil
}
