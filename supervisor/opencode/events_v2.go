package opencode

import (
	"encoding/json"
	"strings"

	"intermission/restart"
)

// headV2 is what is looked at in every frame; the rest is decoded only where it matters.
type headV2 struct {
	Created  float64 `json:"created"` // Unix milliseconds
	Type     string  `json:"type"`
	Location struct {
		Directory string `json:"directory"`
	} `json:"location"`
	Data struct {
		SessionID string `json:"sessionID"`
		Form      struct {
			SessionID string `json:"sessionID"`
		} `json:"form"`
	} `json:"data"`
}

// askV2 are the beginnings of the types that say something is asked of a person, or answered.
var askV2 = []string{"permission.", "question.", "form."}

// progressV2 are the beginnings of the types that say a session does something.
var progressV2 = []string{"session.text.", "session.reasoning.", "session.tool.", "session.step.", "session.shell.", "session.compaction."}

func (v *v2) decode(frame []byte, emit func(restart.Event)) {
	var head headV2
	if json.Unmarshal(frame, &head) != nil {
		return
	}
	if head.Data.SessionID == "" {
		head.Data.SessionID = head.Data.Form.SessionID
	}
	if !plausible(head.Data.SessionID) {
		return
	}
	e := restart.Event{Session: head.Data.SessionID, Directory: head.Location.Directory, At: instant(head.Created)}
	switch head.Type {
	case "session.execution.started":
		e.Kind = restart.EventStarted
	case "session.execution.succeeded":
		e.Kind = restart.EventSucceeded
	case "session.execution.failed":
		e.Kind, e.Err = restart.EventFailed, reasonV2(frame)
	case "session.execution.interrupted":
		e.Kind = interruptionV2(frame)
	case "session.deleted", "session.removed":
		e.Kind = restart.EventDeleted
	case "session.archived":
		e.Kind = restart.EventArchived
	case "session.updated":
		if archivedIn(frame) {
			e.Kind = restart.EventArchived
		}
	default:
		for _, beginning := range progressV2 {
			if strings.HasPrefix(head.Type, beginning) {
				e.Kind = restart.EventProgress
			}
		}
		for _, beginning := range askV2 {
			if strings.HasPrefix(head.Type, beginning) {
				e.Kind = restart.EventAsked
			}
		}
	}
	if e.Kind != "" {
		emit(e)
	}
}

// maxID is the longest id of a session that an event is believed, in bytes; a real one has 30.
const maxID = 256

// plausible says that an event names a session.
func plausible(id string) bool { return id != "" && len(id) <= maxID }

// maxInstant is the end of the year 9999, beyond which nothing writes a date.
const maxInstant = 253402300799999

// instant is a time in Unix milliseconds; 0, which is "it doesn't say", for what can't be one.
func instant(ms float64) int64 {
	if ms < 1 || ms > maxInstant {
		return 0
	}
	return int64(ms)
}

func reasonV2(frame []byte) string {
	var said struct {
		Data struct {
			Error struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
		} `json:"data"`
	}
	_ = json.Unmarshal(frame, &said) // a failure without a reason is one too
	if said.Data.Error.Message != "" {
		return said.Data.Error.Message
	}
	return said.Data.Error.Type
}

// interruptionV2 tells who interrupted. A reason that we don't know counts as the
// shutdown's: it keeps the suspension, which loses nothing.
func interruptionV2(frame []byte) restart.EventKind {
	var said struct {
		Data struct {
			Reason string `json:"reason"`
		} `json:"data"`
	}
	_ = json.Unmarshal(frame, &said)
	if said.Data.Reason == "user" || said.Data.Reason == "superseded" {
		return restart.EventInterrupted
	}
	return restart.EventShutdown
}

func archivedIn(frame []byte) bool {
	type info struct {
		Time struct {
			Archived float64 `json:"archived"`
		} `json:"time"`
	}
	var said struct {
		Data struct {
			Info info `json:"info"`
		} `json:"data"`
		Payload struct {
			Properties struct {
				Info info `json:"info"`
			} `json:"properties"`
		} `json:"payload"`
	}
	return json.Unmarshal(frame, &said) == nil &&
		(said.Data.Info.Time.Archived > 0 || said.Payload.Properties.Info.Time.Archived > 0)
}
