package devserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// frame is one event as it stands on the stream, in the recorded key order.
type frame struct {
	ID       string          `json:"id"`
	Created  int64           `json:"created,omitempty"` // Unix milliseconds
	Metadata map[string]any  `json:"metadata,omitempty"`
	Type     string          `json:"type"`
	Durable  *durable        `json:"durable,omitempty"`
	Location *location       `json:"location,omitempty"`
	Data     json.RawMessage `json:"data"`
}

// durable says where an event stands in its session's log.
type durable struct {
	AggregateID string `json:"aggregateID"`
	Seq         int64  `json:"seq"`
	Version     int    `json:"version"`
}

type location struct {
	Directory string `json:"directory"`
}

// data is the payload of an event.
type data = map[string]any

// recorder collects what happens in one transaction.
type recorder struct {
	*sql.Tx
	ids    *identifiers
	store  *store
	now    int64 // Unix milliseconds
	frames []frame
}

// record commits what fn writes and the events it names, then tells the
// subscribers, in the order of the log.
func (s *server) record(fn func(r *recorder) error) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	r := &recorder{ids: &s.ids, store: s.store, now: time.Now().UnixMilli()}
	err := s.store.transact(context.Background(), func(tx *sql.Tx) error {
		r.Tx, r.frames = tx, nil
		return fn(r)
	})
	if err != nil {
		return fmt.Errorf("cannot write to the database: %w", err)
	}
	s.events.broadcast(r.frames)
	return nil
}

// log adds a durable event to the session's log, of version 1, and gives its place.
// directory is "" for events that carry no location.
func (r *recorder) log(session, directory, eventType string, d data) (int64, error) {
	return r.append(session, frame{Type: eventType, Location: at(directory)}, 1, d)
}

func (r *recorder) append(session string, f frame, version int, d data) (int64, error) {
	f.ID, f.Created = r.ids.next("evt"), r.now
	d["sessionID"] = session
	var err error
	if f.Data, err = json.Marshal(d); err != nil {
		return 0, err
	}
	f.Durable = &durable{AggregateID: session, Version: version}
	if err := r.QueryRow(`INSERT INTO event_sequence (aggregate_id, seq) VALUES (?, 0)
		ON CONFLICT (aggregate_id) DO UPDATE SET seq = seq + 1 RETURNING seq`, session).Scan(&f.Durable.Seq); err != nil {
		return 0, err
	}
	if _, err := r.Exec(`INSERT INTO event (id, aggregate_id, seq, created, type, data) VALUES (?, ?, ?, ?, ?, ?)`,
		f.ID, session, f.Durable.Seq, f.Created, fmt.Sprintf("%s.%d", f.Type, version), string(f.Data)); err != nil {
		return 0, err
	}
	r.frames = append(r.frames, f)
	return f.Durable.Seq, nil
}

// live announces an event that stands in no log.
func (s *server) live(directory, eventType string, d data) {
	payload, err := json.Marshal(d)
	if err != nil {
		s.complain(err)
		return
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.events.broadcast([]frame{{ID: s.ids.next("evt"), Created: time.Now().UnixMilli(), Type: eventType,
		Location: at(directory), Data: payload}})
}

func at(directory string) *location {
	if directory == "" {
		return nil
	}
	return &location{directory}
}

// bus hands each frame to every subscriber. A subscriber that doesn't keep up is closed.
type bus struct {
	mu          sync.Mutex
	subscribers map[chan frame]struct{}
}

func (b *bus) subscribe() chan frame {
	c := make(chan frame, 4096)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers == nil {
		b.subscribers = map[chan frame]struct{}{}
	}
	b.subscribers[c] = struct{}{}
	return c
}

func (b *bus) unsubscribe(c chan frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subscribers, c)
}

func (b *bus) broadcast(frames []frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.subscribers {
		for _, f := range frames {
			select {
			case c <- f:
				continue
			default:
			}
			delete(b.subscribers, c)
			close(c)
			break
		}
	}
}
