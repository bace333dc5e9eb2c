package devserver

import (
	"database/sql"
	"encoding/json"
	"errors"
)

// input is what is said to a session: by its user, or by a program (synthetic).
type input struct {
	ID          string         // idempotency key; "" makes one
	Type        string         // user, synthetic
	Text        string         //
	Description string         // synthetic
	Metadata    map[string]any //
	Delivery    string         // steer, queue
}

// admitted is an accepted input as the API shows it.
type admitted struct {
	AdmittedSeq int64           `json:"admittedSeq"`
	ID          string          `json:"id"`
	SessionID   string          `json:"sessionID"`
	TimeCreated int64           `json:"timeCreated"` // Unix milliseconds
	Type        string          `json:"type"`
	Data        json.RawMessage `json:"data"`
	Delivery    string          `json:"delivery"`
}

// errConflict says that the id was used for something else.
var errConflict = errors.New("message id was used with another content")

func (in input) data() data {
	d := data{"text": in.Text}
	if in.Description != "" {
		d["description"] = in.Description
	}
	if in.Metadata != nil {
		d["metadata"] = in.Metadata
	}
	return d
}

// admit accepts an input once: the same id with the same content gives the same
// answer again, with another content errConflict. The log of events is what tells,
// so that it holds over restarts.
func (s *server) admit(session sessionInfo, in input) (a admitted, err error) {
	if in.ID == "" {
		in.ID = s.ids.next("msg")
	}
	if in.Delivery == "" {
		in.Delivery = "steer"
	}
	err = s.record(func(r *recorder) error {
		body, err := json.Marshal(in.data())
		if err != nil {
			return err
		}
		a = admitted{ID: in.ID, SessionID: session.ID, Type: in.Type, Delivery: in.Delivery, Data: body}
		var known admitted
		var content string
		err = r.QueryRow(`SELECT aggregate_id, seq, created, json_extract(data, '$.input.type'), json_extract(data, '$.input.data'), json_extract(data, '$.input.delivery')
			FROM event WHERE type = 'session.input.admitted.1' AND json_extract(data, '$.inputID') = ?`, in.ID).
			Scan(&known.SessionID, &known.AdmittedSeq, &known.TimeCreated, &known.Type, &content, &known.Delivery)
		switch {
		case err == nil && known.SessionID == session.ID && known.Type == in.Type && content == string(body) && known.Delivery == in.Delivery:
			a.AdmittedSeq, a.TimeCreated = known.AdmittedSeq, known.TimeCreated
			return nil
		case err == nil:
			return errConflict
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		a.TimeCreated = r.now
		a.AdmittedSeq, err = r.log(session.ID, session.Location.Directory, "session.input.admitted", data{
			"inputID": in.ID, "input": data{"type": in.Type, "data": in.data(), "delivery": in.Delivery}})
		if err != nil {
			return err
		}
		_, err = r.Exec(`INSERT INTO session_pending (id, session_id, type, data, delivery, admitted_seq, time_created) VALUES (?, ?, ?, ?, ?, ?, ?)`,
			in.ID, session.ID, in.Type, string(body), in.Delivery, a.AdmittedSeq, r.now)
		return err
	})
	return a, err
}

// promote makes messages of the inputs that wait.
func (s *server) promote(session sessionInfo) error {
	return s.record(func(r *recorder) error {
		waiting, err := pendingInputs(r, session.ID)
		if err != nil {
			return err
		}
		for _, in := range waiting {
			seq, err := r.log(session.ID, session.Location.Directory, "session.input.promoted", data{"inputID": in.ID})
			if err != nil {
				return err
			}
			m := message{}
			if err := json.Unmarshal(in.Data, &m); err != nil {
				return err
			}
			m["id"], m["type"], m["time"] = in.ID, in.Type, data{"created": in.TimeCreated}
			if err := r.putMessage(session.ID, seq, m); err != nil {
				return err
			}
			if _, err := r.Exec(`DELETE FROM session_pending WHERE id = ?`, in.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

func pendingInputs(r *recorder, session string) ([]admitted, error) {
	rows, err := r.Query(`SELECT id, type, data, time_created FROM session_pending WHERE session_id = ? ORDER BY admitted_seq`, session)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []admitted
	for rows.Next() {
		var a admitted
		var body string
		if err := rows.Scan(&a.ID, &a.Type, &body, &a.TimeCreated); err != nil {
			return nil, err
		}
		a.Data = json.RawMessage(body)
		list = append(list, a)
	}
	return list, rows.Err()
}

// waits tells whether inputs of the session wait to be promoted.
func (s *server) waits(session string) (waiting bool, err error) {
	err = s.store.read(func(db *sql.DB) error {
		return db.QueryRow(`SELECT count(*) > 0 FROM session_pending WHERE session_id = ?`, session).Scan(&waiting)
	})
	return waiting, err
}
