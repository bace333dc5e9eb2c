package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// intake is what was read from a server's database to be taken out of it. One
// small write makes it durable as it is, so that the database can be cleared
// within milliseconds of the server's end; what it means is worked out
// afterwards (digest). An intake that stands in the ledger was, or was about to
// be, taken out of the database.
type intake struct {
	Database    string        `json:"database"`
	Generation  string        `json:"generation"`
	Incarnation string        `json:"incarnation"`
	Watched     []string      `json:"watched"` // the incarnations that had ended then, and no later one
	Cause       Cause         `json:"cause"`
	At          int64         `json:"at"`
	Since       int64         `json:"since"`
	Claims      []intakeClaim `json:"claims"`
	Jobs        []intakeJob   `json:"jobs"`
}

// Raw stands as text in it: as JSON it would be written in another form than it has.
type intakeClaim struct {
	Session   string `json:"session"`
	ClaimedAt int64  `json:"at"`
	Attempts  int    `json:"attempts"`
	Parent    string `json:"parent,omitempty"`
	Raw       string `json:"raw"`
	Elsewhere bool   `json:"elsewhere,omitempty"`
}

type intakeJob struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	Session string `json:"session"`
	Child   string `json:"child"`
	Text    string `json:"text"`
	Status  string `json:"status"`
	Raw     string `json:"raw"`
}

// takeIn makes a sweep durable.
func (l *Ledger) takeIn(ctx context.Context, sweep Sweep, opts ParkOptions) error {
	in := intake{Database: opts.Database, Generation: opts.Generation, Incarnation: opts.Incarnation, Cause: opts.Cause,
		At: opts.At, Since: opts.Since, Claims: make([]intakeClaim, len(sweep.Claims)), Jobs: make([]intakeJob, len(sweep.Jobs))}
	for i, c := range sweep.Claims {
		in.Claims[i] = intakeClaim{c.Session, c.ClaimedAt, c.Attempts, c.Parent, string(c.Raw), c.Elsewhere}
	}
	for i, j := range sweep.Jobs {
		in.Jobs[i] = intakeJob{j.Key, j.Kind, j.Session, j.Child, j.Text, j.Status, string(j.Raw)}
	}
	defer l.undigested.Store(true) // also after an error: it may stand there all the same
	return l.change(ctx, func(t *tx) error {
		open, err := t.incarnations("WHERE ended_at IS NULL")
		if err != nil {
			return err
		}
		for _, i := range open {
			in.Watched = append(in.Watched, i.ID)
		}
		content, err := json.Marshal(in)
		if err != nil {
			return err
		}
		return t.exec("INSERT INTO intake (time, content) VALUES (?, ?)", t.now, string(content))
	})
}

func (in *intake) options() ParkOptions {
	return ParkOptions{Database: in.Database, Generation: in.Generation, Incarnation: in.Incarnation,
		Cause: in.Cause, At: in.At, Since: in.Since}
}

func (in *intake) sweep() Sweep {
	s := Sweep{Claims: make([]Claim, len(in.Claims)), Jobs: make([]Job, len(in.Jobs))}
	for i, c := range in.Claims {
		s.Claims[i] = Claim{c.Session, c.ClaimedAt, c.Attempts, c.Parent, []byte(c.Raw), c.Elsewhere}
	}
	for i, j := range in.Jobs {
		s.Jobs[i] = Job{j.Key, j.Kind, j.Session, j.Child, j.Text, j.Status, []byte(j.Raw)}
	}
	return s
}

// digest makes suspensions of what was taken in. It needs no database of a
// server, so that Open can do it for a Park that a crash has broken off. A row
// that was digested before, as it is, means nothing: it was found again because
// it could not be cleared, or because a power failure has undone that.
func (l *Ledger) digest(ctx context.Context, done *Parked) error {
	err := l.change(ctx, func(t *tx) error {
		l.undigested.Store(false) // nobody reads, or takes in more, before this transaction has ended
		seqs, list, err := t.intakes()
		if err != nil {
			var bad *unreadableError
			if errors.As(err, &bad) {
				return fmt.Errorf("the ledger %s holds what it can't read: %w; "+keepAct, l.path, err)
			}
			return err
		}
		for i := range list {
			p, err := t.parking(list[i].options(), done, "WHERE id IN (SELECT value FROM json_each(?))", ids(list[i].Watched))
			if err != nil {
				return err
			}
			if err := p.digest(list[i].sweep()); err != nil {
				return err
			}
			if err := t.exec("DELETE FROM intake WHERE seq = ?", seqs[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		l.undigested.Store(true)
	}
	return err
}

// digestLeft digests what a crash has left.
func (l *Ledger) digestLeft(ctx context.Context) error {
	var left bool
	if err := l.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM intake)").Scan(&left); err != nil || !left {
		return err
	}
	return l.digest(ctx, &Parked{})
}

// digestFirst digests what a Park that isn't done, or has failed, has taken in:
// whoever asks what waits is told of it too.
func (l *Ledger) digestFirst(ctx context.Context) error {
	if !l.undigested.Load() {
		return nil
	}
	return l.digest(ctx, &Parked{})
}

// unreadableError says that what an intake holds is no intake.
type unreadableError struct {
	seq int64
	err error
}

func (e *unreadableError) Error() string {
	return fmt.Sprintf("what was parked at last can't be read (intake %d): %v", e.seq, e.err)
}

func (e *unreadableError) Unwrap() error { return e.err }

// intakes gives what was taken in and not digested, in its order.
func (t *tx) intakes() (seqs []int64, list []intake, err error) {
	rows, err := t.QueryContext(t.ctx, "SELECT seq, content FROM intake ORDER BY seq")
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var content []byte
		var in intake
		if err := rows.Scan(&seq, &content); err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal(content, &in); err != nil {
			return nil, nil, &unreadableError{seq, err}
		}
		seqs, list = append(seqs, seq), append(list, in)
	}
	return seqs, list, rows.Err()
}
