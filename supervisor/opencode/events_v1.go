package opencode

import (
	"encoding/json"
	"strings"

	"intermission/restart"
)

// headV1 is what is looked at in every frame of GET /global/event.
type headV1 struct {
	Directory string `json:"directory"`
	Payload   struct {
		Type       string `json:"type"`
		Properties struct {
			SessionID string `json:"sessionID"`
			Status    struct {
				Type string `json:"type"`
			} `json:"status"`
			Part struct {
				SessionID string `json:"sessionID"`
			} `json:"part"`
		} `json:"properties"`
	} `json:"payload"`
}

// decode turns v1's status into the starts and ends of executions: busy comes
// with each step and idle can come twice, so only changes are told. How a turn
// ended is said before, by session.error. v1 gives no times, and so At stays 0:
// ours would be taken for its, and news look old once our clock was set back.
func (v *v1) decode(frame []byte, emit func(restart.Event)) {
	var head headV1
	if json.Unmarshal(frame, &head) != nil || head.Payload.Type == "sync" {
		return
	}
	p := head.Payload.Properties
	session := p.SessionID
	if session == "" {
		session = p.Part.SessionID
	}
	if !plausible(session) {
		return
	}
	v.watch([]string{head.Directory})
	e := restart.Event{Session: session}
	if head.Directory != "global" {
		e.Directory = head.Directory
	}
	switch kind := head.Payload.Type; {
	case kind == "session.status" && p.Status.Type != "idle":
		e.Kind = v.start(session, head.Directory)
	case kind == "session.status", kind == "session.idle":
		e.Kind, e.Err = v.end(session)
	case kind == "session.error":
		v.note(session, frame)
	case kind == "session.deleted":
		v.forget(session)
		e.Kind = restart.EventDeleted
	case kind == "session.updated":
		if archivedIn(frame) {
			e.Kind = restart.EventArchived
		}
	case strings.HasPrefix(kind, "permission."), strings.HasPrefix(kind, "question."):
		e.Kind = restart.EventAsked
	case strings.HasPrefix(kind, "message.part."):
		if v.busy[session] { // the prompt's own parts come before the turn
			e.Kind = restart.EventProgress
		}
	}
	if e.Kind != "" {
		emit(e)
	}
}

func (v *v1) start(session, dir string) restart.EventKind {
	v.mu.Lock()
	v.where[session] = dir
	v.mu.Unlock()
	delete(v.failed, session)
	delete(v.why, session)
	if v.busy[session] {
		return ""
	}
	v.busy[session] = true
	return restart.EventStarted
}

// end tells how the turn ended. MessageAbortedError is a user's abort and our own
// Quiesce alike: only the caller can tell these apart. A turn that is aborted
// before the model has answered ends without an error (seen with 1.18.33 under
// load), so what ends after a Quiesce counts as interrupted by it: taken for a
// success, the session would be lost from the ledger.
func (v *v1) end(session string) (restart.EventKind, string) {
	if busy, known := v.busy[session]; known && !busy {
		return "", ""
	}
	v.busy[session] = false
	v.left(session)
	name, why := v.failed[session], v.why[session]
	delete(v.failed, session)
	delete(v.why, session)
	switch name {
	case "MessageAbortedError":
		return restart.EventInterrupted, ""
	case "":
		if v.quiesced.Load() {
			return restart.EventInterrupted, ""
		}
		return restart.EventSucceeded, ""
	}
	if why == "" {
		why = name
	}
	return restart.EventFailed, why
}

// note remembers the error that the turn is about to end with.
func (v *v1) note(session string, frame []byte) {
	var said struct {
		Payload struct {
			Properties struct {
				Error struct {
					Name string `json:"name"`
					Data struct {
						Message string `json:"message"`
					} `json:"data"`
				} `json:"error"`
			} `json:"properties"`
		} `json:"payload"`
	}
	if json.Unmarshal(frame, &said) != nil || said.Payload.Properties.Error.Name == "" {
		return
	}
	v.failed[session] = said.Payload.Properties.Error.Name
	v.why[session] = said.Payload.Properties.Error.Data.Message
}

func (v *v1) forget(session string) {
	v.left(session)
	delete(v.busy, session)
	delete(v.failed, session)
	delete(v.why, session)
}

// left says that the session doesn't execute any more.
func (v *v1) left(session string) {
	v.mu.Lock()
	delete(v.where, session)
	v.mu.Unlock()
}
