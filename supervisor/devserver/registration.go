package devserver

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// registration is the file by which a service is found, in the key order of the real one.
type registration struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	URL      string `json:"url"`
	PID      int    `json:"pid"`
	Password string `json:"password"`
}

// publish writes the registration by temporary file and rename, so that no reader sees half of it.
func (r registration) publish(path string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// registered tells whether path holds exactly r, and whether it holds another server's registration.
func (r registration) registered(path string) (same, replaced bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, false
	}
	want, err := json.Marshal(r)
	if err != nil {
		return false, false
	}
	var found registration
	if json.Unmarshal(data, &found) != nil {
		return false, false
	}
	return bytes.Equal(data, want), found.ID != r.ID
}

// unpublish removes the registration if it is still r's.
func (r registration) unpublish(path string) error {
	if _, replaced := r.registered(path); replaced {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func readRegistration(path string) (registration, error) {
	var r registration
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

// serviceConfig is the user's configuration of the service; the password in it outlives restarts.
type serviceConfig struct {
	Hostname string `json:"hostname,omitempty"`
	Port     int    `json:"port,omitempty"`
	Password string `json:"password,omitempty"`
}

// loadServiceConfig reads path, and makes and keeps a password when there is none.
func loadServiceConfig(path string) (serviceConfig, error) {
	var c serviceConfig
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return c, err
	default:
		if err := json.Unmarshal(data, &c); err != nil {
			return c, fmt.Errorf("cannot read %s: %w", path, err)
		}
	}
	if c.Password != "" {
		return c, nil
	}
	c.Password = newPassword()
	data, err = json.Marshal(c)
	if err != nil {
		return c, err
	}
	return c, writeFile(path, data)
}

// newPassword is 43 characters, as the real one's.
func newPassword() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(secret)
}

// writeFile replaces path whole, readable by its owner only.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
