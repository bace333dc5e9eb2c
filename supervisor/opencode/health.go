package opencode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"intermission/platform"
)

// healthSentences are what a person is told.
var healthSentences = map[HealthKind]string{
	NotListening: "nothing listens at its address",
	Silent:       "it accepted the connection and never answered",
	BootFailed:   "it answers that it failed to start",
	Transition:   "it answers that it is starting or stopping",
	Unauthorized: "it does not accept the password that we know",
	Stranger:     "what answers at its address is not that server",
}

// healthPaths are where a server of each generation tells how it is, oldest
// first: v2 has moved it twice in 2026.
var healthPaths = map[Generation][]string{
	V1: {"/global/health"},
	V2: {"/api/health", "/api/info", "/api/status"},
}

// Health asks the server how it is, on fresh connections, within 2 s. It returns
// nil or a *HealthError, and ctx's error when ctx was cancelled meanwhile. The
// status code decides: a v2 server that failed to boot answers 500 with a body
// that says healthy. The content type is looked at, because v1 answers 200 with
// a web page on paths that it doesn't know, and on v2 the pid must be inc's.
func Health(ctx context.Context, inc Incarnation) error {
	within, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	transport := newTransport()
	transport.DisableKeepAlives = true
	w := &wire{inc: inc, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}}
	defer w.close()
	err := w.health(within)
	if err != nil && ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return err
}

func (w *wire) health(ctx context.Context) error {
	err := error(&HealthError{Kind: Stranger, Detail: "it has no health page"})
	for _, path := range healthPaths[w.inc.Generation] {
		var missing bool
		if missing, err = checkHealth(ctx, w, path); !missing {
			break
		}
	}
	return err
}

// checkHealth looks at one page; missing when the server doesn't have it.
func checkHealth(ctx context.Context, w *wire, path string) (missing bool, err error) {
	answer, err := w.call(ctx, http.MethodGet, path, nil, maxAnswer)
	if err != nil {
		return false, unreachable(err)
	}
	detail := fmt.Sprintf("status %d", answer.status)
	switch answer.status {
	case http.StatusOK:
	case http.StatusNotFound:
		return true, &HealthError{Kind: Stranger, Detail: "it has no health page"}
	case http.StatusUnauthorized, http.StatusForbidden:
		return false, &HealthError{Kind: Unauthorized, Detail: detail}
	case http.StatusInternalServerError:
		return false, &HealthError{Kind: BootFailed, Detail: detail}
	case http.StatusServiceUnavailable:
		return false, &HealthError{Kind: Transition, Detail: detail}
	default:
		return false, &HealthError{Kind: Stranger, Detail: detail}
	}
	if !answer.json {
		return true, &HealthError{Kind: Stranger, Detail: "its health page is no JSON"}
	}
	return false, judge(w.inc, answer.body)
}

// judge looks at the body of a 200.
func judge(inc Incarnation, body []byte) error {
	var said struct {
		Healthy *bool  `json:"healthy"`
		Version string `json:"version"`
		PID     int    `json:"pid"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Version == "" {
		return &HealthError{Kind: Stranger, Detail: "its health page has another form"}
	}
	if inc.Generation == V2 && said.PID != inc.PID {
		return &HealthError{Kind: Stranger, Detail: fmt.Sprintf("it has pid %d, not %d", said.PID, inc.PID)}
	}
	if said.Healthy != nil && !*said.Healthy {
		return &HealthError{Kind: Transition, Detail: "it says that it is not healthy"}
	}
	return nil
}

// unreachable tells the failures of a request apart. The request's own error
// text is not used whole: it is long, and says the same.
func unreachable(err error) *HealthError {
	var dial *net.OpError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, platform.ErrForeignListener):
		return &HealthError{Kind: Stranger, Detail: cause(err)}
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return &HealthError{Kind: Silent, Detail: fmt.Sprintf("within %s", healthTimeout)}
	case errors.As(err, &dial) && dial.Op == "dial":
		return &HealthError{Kind: NotListening, Detail: cause(dial.Err)}
	case errors.Is(err, errTooLong), strings.Contains(err.Error(), "malformed HTTP"):
		return &HealthError{Kind: Stranger, Detail: "it does not speak as one"}
	default:
		return &HealthError{Kind: Silent, Detail: "the connection was closed: " + cause(err)}
	}
}

// cause is err without the wrapping that repeats method and URL.
func cause(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return err.Error()
}
