package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// server is a running OpenCode server, as its registration tells.
type server struct {
	URL      string `json:"url"`
	Password string `json:"password"`
	PID      int    `json:"pid"`
}

// findServer reads a registration and asks the server whether it is ready.
func findServer(ctx context.Context, registration string) (server, error) {
	var s server
	text, err := os.ReadFile(registration)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("cannot read %s: %w", registration, err)
	}
	return s, s.call(ctx, http.MethodGet, "/api/health", nil, nil)
}

// callTimeout bounds one request. All that are made here answer at once.
const callTimeout = 5 * time.Second

// call makes one request; in and out are JSON, nil for none.
func (s server) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var body io.Reader = http.NoBody
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		return err
	}
	req.SetBasicAuth("opencode", s.Password)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true // so that no connection outlives the server
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// begin makes a session in a directory and gives it its first prompt.
func (s server) begin(ctx context.Context, directory, prompt string) (id string, err error) {
	var made struct{ Data struct{ ID string } }
	where := map[string]any{"location": map[string]any{"directory": directory}}
	if err := s.call(ctx, http.MethodPost, "/api/session", where, &made); err != nil {
		return "", fmt.Errorf("cannot make a session: %w", err)
	}
	id = made.Data.ID
	if err := s.call(ctx, http.MethodPost, "/api/session/"+id+"/prompt", map[string]any{"text": prompt}, nil); err != nil {
		return "", fmt.Errorf("cannot prompt: %w", err)
	}
	return id, nil
}

// active tells whether a session executes now.
func (s server) active(ctx context.Context, id string) (bool, error) {
	var running struct{ Data map[string]any }
	err := s.call(ctx, http.MethodGet, "/api/session/active", nil, &running)
	_, ok := running.Data[id]
	return ok, err
}

// title gives a session's title. A new one gets it a little after its first prompt.
func (s server) title(ctx context.Context, id string) (string, error) {
	var session struct{ Data struct{ Title string } }
	err := s.call(ctx, http.MethodGet, "/api/session/"+id, nil, &session)
	return session.Data.Title, err
}
