package devserver

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The model that every session has.
var theModel = data{"id": "stub-model", "providerID": "stub"}

const theAgent = "build"

// noTokens is a usage of nothing.
func noTokens() data {
	return data{"input": 0, "output": 0, "reasoning": 0, "cache": data{"read": 0, "write": 0}}
}

// sessionInfo is a session as the API shows it.
type sessionInfo struct {
	ID        string   `json:"id"`
	ParentID  string   `json:"parentID,omitempty"`
	ProjectID string   `json:"projectID"`
	Agent     string   `json:"agent,omitempty"`
	Cost      float64  `json:"cost"`
	Tokens    data     `json:"tokens"`
	Time      times    `json:"time"`
	Title     string   `json:"title"`
	Location  location `json:"location"`
}

type times struct {
	Created  int64 `json:"created"` // Unix milliseconds
	Updated  int64 `json:"updated"`
	Archived int64 `json:"archived,omitempty"`
}

const sessionColumns = `id, coalesce(parent_id, ''), project_id, coalesce(agent, ''), time_created, time_updated, coalesce(time_archived, 0), title, directory`

func scanSession(row interface{ Scan(...any) error }) (sessionInfo, error) {
	s := sessionInfo{Tokens: noTokens()}
	err := row.Scan(&s.ID, &s.ParentID, &s.ProjectID, &s.Agent, &s.Time.Created, &s.Time.Updated, &s.Time.Archived, &s.Title, &s.Location.Directory)
	return s, err
}

// notFoundError says that there is no such session.
type notFoundError struct{ session string }

func (e *notFoundError) Error() string { return "Session not found: " + e.session }

// createSession makes a session; parent is "" for a root. id is "" for a new one;
// a session that exists already is given as it is.
func (s *server) createSession(id, parent, directory string) (sessionInfo, error) {
	if id != "" {
		info, err := s.session(id)
		var missing *notFoundError
		if !errors.As(err, &missing) {
			return info, err
		}
	} else {
		id = s.ids.session()
	}
	err := s.record(func(r *recorder) error {
		title := "New session - " + time.UnixMilli(r.now).UTC().Format("2006-01-02T15:04:05.000Z")
		_, err := r.Exec(s.store.sql(`INSERT INTO {session} (id, project_id, parent_id, slug, directory, path, title, version, agent, time_created, time_updated)
			VALUES (?, 'global', nullif(?, ''), ?, ?, '', ?, ?, ?, ?, ?)`),
			id, parent, "swift-"+strings.ToLower(id[len(id)-4:]), directory, title, s.set.version, theAgent, r.now, r.now)
		if err != nil {
			return err
		}
		info := data{"id": id, "slug": "swift-" + strings.ToLower(id[len(id)-4:]), "projectID": "global", "directory": directory, "path": "",
			"cost": 0, "tokens": noTokens(), "title": title, "version": s.set.version, "time": data{"created": r.now, "updated": r.now}}
		if parent != "" {
			info["parentID"] = parent
		}
		_, err = r.log(id, directory, "session.created", data{"info": info})
		return err
	})
	if err != nil {
		return sessionInfo{}, err
	}
	return s.session(id)
}

// session reads one session; *notFoundError when there is none.
func (s *server) session(id string) (info sessionInfo, err error) {
	err = s.store.read(func(db *sql.DB) error {
		info, err = scanSession(db.QueryRow(s.store.sql(`SELECT `+sessionColumns+` FROM {session} WHERE id = ?`), id))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = &notFoundError{id}
	}
	return info, err
}

// listSessions gives at most limit sessions, newest first unless ascending. parent
// nil means all, "" the roots.
func (s *server) listSessions(parent *string, directory string, limit int, ascending bool) ([]sessionInfo, error) {
	where, args := []string{"1"}, []any{}
	switch {
	case parent == nil:
	case *parent == "":
		where = append(where, "parent_id IS NULL")
	default:
		where, args = append(where, "parent_id = ?"), append(args, *parent)
	}
	if directory != "" {
		where, args = append(where, "directory = ?"), append(args, directory)
	}
	order := "DESC"
	if ascending {
		order = "ASC"
	}
	sessions := []sessionInfo{}
	err := s.store.read(func(db *sql.DB) error {
		rows, err := db.Query(s.store.sql(fmt.Sprintf(`SELECT %s FROM {session} WHERE %s ORDER BY time_created %s, id LIMIT ?`,
			sessionColumns, strings.Join(where, " AND "), order)), append(args, limit)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			info, err := scanSession(rows)
			if err != nil {
				return err
			}
			sessions = append(sessions, info)
		}
		return rows.Err()
	})
	return sessions, err
}

// deleteSession removes a session and its messages, and ends its execution.
func (s *server) deleteSession(id string) error {
	info, err := s.session(id)
	if err != nil {
		return err
	}
	s.interrupt(id)
	return s.record(func(r *recorder) error {
		if _, err := r.append(id, frame{Type: "session.deleted", Location: at(info.Location.Directory)}, 2, data{}); err != nil {
			return err
		}
		_, err := r.Exec(s.store.sql(`DELETE FROM {session} WHERE id = ?`), id)
		return err
	})
}

// message is a message as the API shows it. The database holds the same without id and type.
type message map[string]any

// putMessage writes a message at its place in the session.
func (r *recorder) putMessage(session string, seq int64, m message) error {
	id, messageType := m["id"].(string), m["type"].(string)
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = r.Exec(`INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)
		VALUES (?, ?, ?, ?, ?, ?, json_remove(?, '$.id', '$.type'))
		ON CONFLICT (id) DO UPDATE SET time_updated = excluded.time_updated, data = excluded.data`,
		id, session, messageType, seq, r.now, r.now, string(body))
	if err != nil {
		return err
	}
	_, err = r.Exec(r.store.sql(`UPDATE {session} SET time_updated = ? WHERE id = ?`), r.now, session)
	return err
}

func scanMessage(row interface{ Scan(...any) error }) (message, error) {
	var id, messageType, body string
	if err := row.Scan(&id, &messageType, &body); err != nil {
		return nil, err
	}
	m := message{}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		return nil, fmt.Errorf("cannot read message %s: %w", id, err)
	}
	m["id"], m["type"] = id, messageType
	return m, nil
}

// messages gives at most limit messages of a session, oldest first unless descending; all for a limit below 0.
func (s *server) messages(session string, limit int, descending bool) ([]message, error) {
	order := "ASC"
	if descending {
		order = "DESC"
	}
	list := []message{}
	err := s.store.read(func(db *sql.DB) error {
		rows, err := db.Query(`SELECT id, type, data FROM session_message WHERE session_id = ? ORDER BY seq `+order+` LIMIT ?`, session, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			m, err := scanMessage(rows)
			if err != nil {
				return err
			}
			list = append(list, m)
		}
		return rows.Err()
	})
	return list, err
}

// message reads one message; nil when the session has no such message.
func (s *server) message(session, id string) (m message, err error) {
	err = s.store.read(func(db *sql.DB) error {
		m, err = scanMessage(db.QueryRow(`SELECT id, type, data FROM session_message WHERE session_id = ? AND id = ?`, session, id))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return m, err
}
