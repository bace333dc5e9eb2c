package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"intermission/platform"
)

// maxRegistration bounds a registration file; a real one has 200 bytes.
const maxRegistration = 64 << 10

// registration is one service*.json of a v2 server.
type registration struct {
	Incarnation
	Name    string    // of the file
	Changed time.Time // of the file
}

// registrations reads all registrations of dir, newest first. What can't be read
// or isn't a registration is no registration: an empty or cut-off file is what a
// crash leaves, and other programs' files are none of ours.
func registrations(dir string) []registration {
	paths, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "service*.json"))
	var found []registration
	for _, path := range paths {
		if r, err := readRegistration(path); err == nil {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b registration) int { return b.Changed.Compare(a.Changed) })
	return found
}

// escapeGlob makes dir stand for itself in a pattern. On Windows, where the
// backslash separates, brackets can't be escaped, nor do they occur in practice.
func escapeGlob(dir string) string {
	if filepath.Separator == '\\' {
		return dir
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func readRegistration(path string) (registration, error) {
	// Not opened before it is known to be a file: a FIFO of that name would be waited for without end.
	text, cut, err := platform.ReadTail(path, maxRegistration, true)
	if err == nil && cut {
		err = errors.New("too large")
	}
	if err != nil {
		return registration{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return registration{}, err
	}
	inc, err := parseRegistration(text)
	return registration{inc, filepath.Base(path), info.ModTime()}, err
}

func parseRegistration(text []byte) (Incarnation, error) {
	var inc Incarnation
	if err := json.Unmarshal(text, &inc); err != nil {
		return Incarnation{}, fmt.Errorf("cannot read registration: %w", err)
	}
	inc.Generation = V2
	inc.URL = strings.TrimRight(inc.URL, "/")
	at, err := url.Parse(inc.URL)
	switch {
	case err != nil || at.Scheme != "http" || at.Host == "" || at.User != nil:
		return Incarnation{}, errors.New("the registration has no usable url")
	case inc.PID <= 1 || inc.ID == "" || inc.Password == "":
		return Incarnation{}, errors.New("the registration is incomplete")
	}
	return inc, nil
}

// Discover finds the registered server (v2), without signalling anyone.
//
// It returns the Incarnation that answers as healthy under its registered pid;
// *IncumbentError when a registered process lives and something answers for it,
// but not as a healthy server, or as one of another release channel that uses
// the same database; ErrNone otherwise, which includes registrations
// whose process is gone, or lives but doesn't listen, or where a stranger
// answers: a crash leaves such, and their pid may be another program's by now.
// Neither is proof that no server is up: only the lock is. Who holds it may
// disregard an *IncumbentError, but for one of Kind Healthy: that server holds
// the lock of its own channel and not ours, and runs on the same database.
// v1 registers nothing: always ErrNone.
func (i *Install) Discover(ctx context.Context) (Incarnation, error) {
	if i.Generation != V2 {
		return Incarnation{}, ErrNone
	}
	result, names := ErrNone, registrationNames(channelOf(i.Version))
	for _, r := range registrations(i.RegistrationDir()) {
		if !i.shares(r) || !alive(r.PID) {
			continue
		}
		err := Health(ctx, r.Incarnation)
		var unwell *HealthError
		switch {
		case err == nil && slices.Contains(names, r.Name):
			return r.Incarnation, nil
		case err == nil:
			result = &IncumbentError{PID: r.PID, Kind: Healthy, Reason: "it is of another release channel (" + r.Name + ") on the same database"}
		case !errors.As(err, &unwell):
			return Incarnation{}, err
		case unwell.Kind != NotListening && unwell.Kind != Stranger && errors.Is(result, ErrNone):
			result = &IncumbentError{PID: r.PID, Kind: unwell.Kind, Reason: unwell.Error()}
		}
	}
	return Incarnation{}, result
}

// shares tells whether r's server uses the same database as i's would. The
// server of another release channel does not, unless it is one of those that
// share a file; what doesn't is another service, and none of ours.
func (i *Install) shares(r registration) bool {
	mine, err := i.DatabasePath()
	if err != nil {
		return false
	}
	other, err := DatabasePath(environ(i.Env).get, r.Version)
	return err == nil && other == mine
}
