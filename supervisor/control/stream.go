package control

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// logs streams the server's output as text, each write at once.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	n, err := queryInt(r, "n", -1)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	out := &flushed{w: w, rc: http.NewResponseController(w)}
	if r.URL.Query().Get("follow") == "true" {
		if err := out.begin(); err != nil { // the caller waits for the header before the first line comes
			return
		}
	}
	err = s.backend.Logs(r.Context(), out, n, r.URL.Query().Get("follow") == "true")
	switch {
	case r.Context().Err() != nil: // the end of a follow
	case err == nil:
		_ = out.begin()
	case out.began:
		s.log.Warn("control: the log stream broke", "err", err)
		panic(http.ErrAbortHandler) // a cut that the client can tell from an end
	default:
		s.fail(w, r, err)
	}
}

// flushed writes text and sends each write at once.
type flushed struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	began bool
}

func (f *flushed) begin() error {
	if f.began {
		return nil
	}
	f.began = true
	f.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	f.w.WriteHeader(http.StatusOK)
	return f.rc.Flush()
}

func (f *flushed) Write(b []byte) (int, error) {
	if err := f.begin(); err != nil {
		return 0, err
	}
	n, err := f.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.rc.Flush()
}

// events streams snapshots, server-sent. A reader that is slower than the
// changes gets the newest one only. There is no heartbeat: the socket is local,
// so that the end of either side is told by the kernel, and a timer for each
// tray would be our only wake-up.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	newest := make(chan Snapshot, 1) // one place: see replace
	ended := make(chan error, 1)
	go func() {
		ended <- s.backend.Watch(ctx, func(snap Snapshot) error {
			replace(newest, snap)
			return ctx.Err()
		})
	}()

	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = rc.Flush()
	var last []byte
	for {
		select {
		case snap := <-newest:
			last = sendEvent(w, rc, snap, last)
		case err := <-ended:
			select {
			case snap := <-newest:
				sendEvent(w, rc, snap, last)
			default:
			}
			if ctx.Err() == nil && err != nil {
				s.log.Warn("control: the event stream broke", "err", err)
				panic(http.ErrAbortHandler)
			}
			return
		}
	}
}

// replace puts snap into the one place of c, in place of an older one. Only one
// goroutine sends to c.
func replace(c chan Snapshot, snap Snapshot) {
	select {
	case <-c:
	default:
	}
	c <- snap
}

// sendEvent sends snap unless it equals the last frame, and returns the newest
// frame. A failed write needs no handling: the connection's end cancels the request.
func sendEvent(w http.ResponseWriter, rc *http.ResponseController, snap Snapshot, last []byte) []byte {
	snap.Status, snap.Pending = fullStatus(snap.Status), fullSuspensions(snap.Pending)
	snap.Outcomes = full(snap.Outcomes)
	var b bytes.Buffer
	b.WriteString("data: ")
	e := json.NewEncoder(&b) // ends the line; JSON holds no other line break
	e.SetEscapeHTML(false)
	if err := e.Encode(snap); err != nil {
		return last
	}
	b.WriteByte('\n')
	if bytes.Equal(b.Bytes(), last) {
		return last
	}
	_, _ = w.Write(b.Bytes())
	_ = rc.Flush()
	return b.Bytes()
}

// full gives an empty list in place of none, as JSON tells them apart.
func full[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func fullStatus(st Status) Status {
	st.Sessions.Active, st.Sessions.Working = full(st.Sessions.Active), full(st.Sessions.Working)
	if st.Server.LastExit != nil {
		exit := *st.Server.LastExit
		exit.Output = full(exit.Output)
		st.Server.LastExit = &exit
	}
	return st
}

func fullSuspension(s Suspension) Suspension {
	s.Children, s.Jobs = full(s.Children), full(s.Jobs)
	return s
}

func fullSuspensions(list []Suspension) []Suspension {
	out := make([]Suspension, len(list))
	for i, s := range list {
		out[i] = fullSuspension(s)
	}
	return out
}
