//go:build linux

package conformance

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// requestKind tells a session's own turns from what the server asks on the side.
type requestKind string

const (
	kindTurn  requestKind = "turn"
	kindTitle requestKind = "title" // v1 names a new session by a request of its own
)

// modelRequest is one request that reached the stub provider.
type modelRequest struct {
	kind  requestKind
	users []string // the texts of the user's messages, oldest first
	tools int      // tool results after the newest of them
}

func (r modelRequest) lastUser() string {
	if len(r.users) == 0 {
		return ""
	}
	return r.users[len(r.users)-1]
}

// provider is a model provider on loopback that speaks the OpenAI
// chat-completions stream. What it answers is directed by the user's last text:
//
//	[[slow N MS]]  N words, MS milliseconds apart
//	[[bash CMD]]   one call of the bash tool with CMD; after its result, a short answer
//	anything else  a short answer, or what proceed directs
//
// It keeps every request: the count of those that reach it is the truth about consent.
type provider struct {
	url string // what goes into the server's configuration as baseURL

	mu       sync.Mutex
	requests []modelRequest
	proceed  string
}

func startProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.complete)
	srv := httptest.NewUnstartedServer(mux)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("cannot listen for the stub provider: %v", err)
	}
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	p.url = srv.URL + "/v1"
	return p
}

// count counts the requests of one kind in conversations where marker stands in
// a text of the user's.
func (p *provider) count(kind requestKind, marker string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.requests {
		if r.kind == kind && strings.Contains(strings.Join(r.users, "\n"), marker) {
			n++
		}
	}
	return n
}

// total counts the requests of all kinds.
func (p *provider) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.requests)
}

// chatRequest is the part of an OpenAI chat-completions request that matters here.
type chatRequest struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

func (p *provider) complete(w http.ResponseWriter, r *http.Request) {
	var in chatRequest
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req := readRequest(in)
	p.mu.Lock()
	p.requests = append(p.requests, req)
	n, proceed := len(p.requests), p.proceed
	p.mu.Unlock()

	w.Header().Set("Content-Type", "text/event-stream")
	s := chatStream{w: w, id: fmt.Sprintf("chatcmpl-%d", n)}
	if req.kind == kindTitle {
		s.say("A stub's title")
		return
	}
	d := readDirective(req.lastUser())
	if d == (directive{}) {
		d = readDirective(proceed)
	}
	switch {
	case d.command != "" && req.tools == 0:
		s.call(n, d.command)
	case d.words > 0:
		s.sayslowly(r, d.words, d.pause)
	default:
		s.say("That is done.")
	}
}

func readRequest(in chatRequest) modelRequest {
	req := modelRequest{kind: kindTurn}
	for _, m := range in.Messages {
		text := contentText(m.Content)
		switch m.Role {
		case "system":
			// Seen in 1.18.33: the title agent's system prompt begins so, nothing else tells it apart.
			if strings.Contains(text, "You are a title generator") {
				req.kind = kindTitle
			}
		case "user":
			req.users = append(req.users, text)
			req.tools = 0
		case "tool":
			req.tools++
		}
	}
	return req
}

// contentText gives a message's text, which is a string or a list of parts.
func contentText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = part.Text
	}
	return strings.Join(texts, "\n")
}

type directive struct {
	words   int
	pause   time.Duration
	command string
}

var (
	slowDirective = regexp.MustCompile(`\[\[slow (\d+) (\d+)\]\]`)
	bashDirective = regexp.MustCompile(`\[\[bash (.+?)\]\]`)
)

func readDirective(text string) directive {
	if m := bashDirective.FindStringSubmatch(text); m != nil {
		return directive{command: m[1]}
	}
	if m := slowDirective.FindStringSubmatch(text); m != nil {
		words, _ := strconv.Atoi(m[1])
		ms, _ := strconv.Atoi(m[2])
		return directive{words: words, pause: time.Duration(ms) * time.Millisecond}
	}
	return directive{}
}

// chatStream writes one answer as server-sent chunks.
type chatStream struct {
	w  http.ResponseWriter
	id string
}

func (s chatStream) chunk(delta map[string]any, finish any) {
	frame, _ := json.Marshal(map[string]any{
		"id": s.id, "object": "chat.completion.chunk", "created": time.Now().Unix(), "model": stubModel,
		"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
	})
	fmt.Fprintf(s.w, "data: %s\n\n", frame)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (s chatStream) end(finish string) {
	s.chunk(map[string]any{}, finish)
	fmt.Fprint(s.w, "data: [DONE]\n\n")
}

func (s chatStream) say(text string) {
	s.chunk(map[string]any{"role": "assistant", "content": text}, nil)
	s.end("stop")
}

func (s chatStream) sayslowly(r *http.Request, words int, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := range words {
		s.chunk(map[string]any{"role": "assistant", "content": fmt.Sprintf("word%d ", i+1)}, nil)
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
	s.end("stop")
}

func (s chatStream) call(n int, command string) {
	args, _ := json.Marshal(map[string]string{"command": command, "description": "Runs a command"})
	s.chunk(map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
		"index": 0, "id": fmt.Sprintf("call_%d", n), "type": "function",
		"function": map[string]any{"name": "bash", "arguments": string(args)},
	}}}, nil)
	s.end("tool_calls")
}
