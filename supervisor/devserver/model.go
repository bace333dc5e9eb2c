package devserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// emptyTree is git's name for a tree without files: the snapshot of a directory that is no repository.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// assistant is the message that one step writes. Each change of it is an event and
// a new version of its row, in one transaction.
type assistant struct {
	s       *server
	session sessionInfo
	id      string
	seq     int64 // its place in the session
	created int64 // Unix milliseconds
	content []data
	extra   data // finish, error, cost, tokens
}

// step makes one request to the scripted provider and does what it answers.
func (s *server) step(ctx context.Context, session sessionInfo, st step) error {
	switch st.kind {
	case stepEmpty:
		return nil
	case stepCrash:
		after, err := time.ParseDuration(st.arg)
		if err == nil && !wait(ctx, after) {
			return context.Cause(ctx)
		}
		s.abort()
	}
	a := &assistant{s: s, session: session, id: s.ids.next("msg"), extra: data{}}
	if err := a.begin(); err != nil {
		return err
	}
	finish, err := a.play(ctx, st)
	switch {
	case err == nil:
		return a.finish(finish)
	case ctx.Err() != nil:
		return errors.Join(a.fail(data{"type": "aborted", "message": "Step interrupted"}), context.Cause(ctx))
	}
	var refused *providerError
	if errors.As(err, &refused) {
		return errors.Join(a.fail(refused.data()), err)
	}
	return err
}

// play does what st says, and tells why the step ended.
func (a *assistant) play(ctx context.Context, st step) (finish string, err error) {
	switch st.kind {
	case stepSlow:
		n, pause := st.tokens()
		return "stop", a.say(ctx, n, pause)
	case stepFail, stepErr:
		return "", &providerError{"provider.invalid-request", `Provider request failed with HTTP 400: {"error":{"message":"stub error","type":"stub"}}`}
	case stepShell, stepBgShell, stepSubagent, stepBackground, stepPermission, stepQuestion:
		return "tool-calls", a.use(ctx, st)
	}
	return "", &providerError{"provider.invalid-request", fmt.Sprintf("the script has no directive %q", st.kind)}
}

// wait waits for d; false says that ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// log records an event of this step, and the message as it stands now.
func (a *assistant) log(eventType string, d data) error {
	return a.s.record(func(r *recorder) error {
		d["assistantMessageID"] = a.id
		seq, err := r.log(a.session.ID, a.session.Location.Directory, eventType, d)
		if err != nil {
			return err
		}
		if a.created == 0 {
			a.created, a.seq = r.now, seq
		}
		t := data{"created": a.created}
		if a.extra["finish"] != nil {
			t["completed"] = r.now
		}
		m := message{"id": a.id, "type": "assistant", "time": t, "agent": theAgent, "model": theModel,
			"content": a.content, "snapshot": data{"start": emptyTree}}
		if a.content == nil {
			m["content"] = []data{}
		}
		for k, v := range a.extra {
			m[k] = v
		}
		return r.putMessage(a.session.ID, a.seq, m)
	})
}

func (a *assistant) begin() error {
	return a.log("session.step.started", data{"agent": theAgent, "model": theModel, "snapshot": emptyTree})
}

func (a *assistant) finish(why string) error {
	usage := noTokens()
	usage["input"], usage["output"] = 10, 5
	a.extra = data{"finish": why, "cost": 0, "tokens": usage}
	err := a.log("session.step.ended", data{"finish": why, "cost": 0, "tokens": usage, "snapshot": emptyTree, "files": []string{}})
	if err == nil {
		a.s.live("", "session.usage.updated", data{"sessionID": a.session.ID, "cost": 0, "tokens": usage})
	}
	return err
}

func (a *assistant) fail(cause data) error {
	a.extra = data{"finish": "error", "error": cause}
	return a.log("session.step.failed", data{"error": cause})
}

// say writes n words, one each pause. What was written when ctx ends is kept.
func (a *assistant) say(ctx context.Context, n int, pause time.Duration) error {
	ordinal := len(a.content)
	a.content = append(a.content, data{"type": "text", "text": ""})
	if err := a.log("session.text.started", data{"ordinal": ordinal}); err != nil {
		return err
	}
	var text strings.Builder
	for i := 1; i <= n; i++ {
		if i > 1 && !wait(ctx, pause) || ctx.Err() != nil {
			break
		}
		word := fmt.Sprintf("tok%d ", i)
		text.WriteString(word)
		a.s.live(a.session.Location.Directory, "session.text.delta", data{
			"sessionID": a.session.ID, "assistantMessageID": a.id, "ordinal": ordinal, "delta": word})
	}
	a.content[ordinal]["text"] = text.String()
	if err := a.log("session.text.ended", data{"ordinal": ordinal, "text": text.String()}); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// call is one tool call of a step.
type call struct {
	a     *assistant
	id    string
	part  data
	input data
}

// tool records a tool's call around run, which does it. An error of run is the
// tool's and not the turn's, unless ctx ended.
func (a *assistant) tool(ctx context.Context, name string, input data, run func(ctx context.Context, c *call) (output string, structured data, err error)) error {
	c := &call{a: a, id: a.s.ids.next("call"), input: input}
	now := time.Now().UnixMilli()
	text, err := json.Marshal(input)
	if err != nil {
		return err
	}
	c.part = data{"type": "tool", "id": c.id, "name": name, "time": data{"created": now},
		"state": data{"status": "streaming", "input": ""}}
	a.content = append(a.content, c.part)
	if err := a.log("session.tool.input.started", data{"callID": c.id, "name": name}); err != nil {
		return err
	}
	if err := a.log("session.tool.input.ended", data{"callID": c.id, "text": string(text)}); err != nil {
		return err
	}
	c.part["state"] = data{"status": "running", "input": input, "structured": data{}, "content": []data{}}
	c.part["time"] = data{"created": now, "ran": time.Now().UnixMilli()}
	if err := a.log("session.tool.called", data{"callID": c.id, "input": input, "executed": false}); err != nil {
		return err
	}
	output, structured, err := run(ctx, c)
	return c.settle(ctx, output, structured, err)
}

// settle records how a call ended.
func (c *call) settle(ctx context.Context, output string, structured data, failure error) error {
	if structured == nil {
		structured = data{}
	}
	content := []data{{"type": "text", "text": output}}
	c.part["time"].(data)["completed"] = time.Now().UnixMilli()
	if failure == nil && ctx.Err() == nil {
		c.part["state"] = data{"status": "completed", "input": c.input, "content": content, "structured": structured}
		return c.a.log("session.tool.success", data{"callID": c.id, "structured": structured, "content": content, "executed": false})
	}
	cause := data{"type": "aborted", "message": "Tool execution interrupted"}
	if ctx.Err() == nil {
		cause = data{"type": "tool.failed", "message": failure.Error()}
	}
	c.part["state"] = data{"status": "error", "input": c.input, "content": content, "structured": structured, "error": cause}
	err := c.a.log("session.tool.failed", data{"callID": c.id, "error": cause, "executed": false})
	return errors.Join(err, context.Cause(ctx))
}
