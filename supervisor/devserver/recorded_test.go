package devserver

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// recordedAPI is what was recorded of the real server: the answers of the calls
// that we serve, and the events that we send.
type recordedAPI struct {
	Paths   map[string]map[string]struct{ Responses map[string]any }
	Events  map[string][]string // event type → names of its schemas
	Schemas map[string]any
}

var recorded = sync.OnceValue(func() recordedAPI {
	var api recordedAPI
	text, err := os.ReadFile("testdata/v2-early-api.json")
	if err == nil {
		err = json.Unmarshal(text, &api)
	}
	if err != nil {
		panic(err)
	}
	return api
})

// additions are the calls that the recorded API doesn't have, by "METHOD path
// status", each with the facts that OPENCODE.md states of it.
var additions = map[string]string{
	"POST /api/session/{sessionID}/resume 204":    "HTTP API, resume: claims generation only, 204 after the execution settles",
	"POST /api/session/{sessionID}/resume 404":    "as every call of an unknown session",
	"POST /api/session/{sessionID}/interrupt 200": `HTTP API, interrupt: newer {"interrupted":true|false}`,
	"GET /api/health 500":                         "Health: boot failed, same body",
	"GET /api/health 503":                         "Health: starting or stopping",
	"GET /api/info 200":                           `Health: newer servers {"version","pid","urls":[],"paths":{}}`,
	"GET /api/status 200":                         "Health: between them",
}

// checkAnswer holds one answer to the recorded schema of its call.
func checkAnswer(method, path string, status int, body []byte) error {
	path, _, _ = strings.Cut(path, "?")
	template := ""
	for known := range recorded().Paths {
		// A literal path goes before one with a name in its place.
		if matches(known, path) && (template == "" || strings.Count(known, "{") < strings.Count(template, "{")) {
			template = known
		}
	}
	responses := recorded().Paths[template][strings.ToLower(method)].Responses
	schema, documented := responses[fmt.Sprint(status)]
	if !documented {
		for key := range additions {
			if part := strings.Fields(key); part[0] == method && matches(part[1], path) && part[2] == fmt.Sprint(status) {
				return nil
			}
		}
		if status == 503 || status == 500 {
			return nil // any call may fail; those bodies are nobody's to read
		}
		return fmt.Errorf("%s %s: the real server is not known to answer %d", method, path, status)
	}
	if schema == nil {
		if status == 204 && len(body) > 0 {
			return fmt.Errorf("%s %s: 204 with a body", method, path)
		}
		return nil // no JSON: the event stream
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := fits(schema, value, "$"); err != nil {
		return fmt.Errorf("%s %s %d: %w\n%s", method, path, status, err, body)
	}
	return nil
}

func matches(pattern, path string) bool {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(want, got, func(w, g string) bool { return w == g || strings.HasPrefix(w, "{") })
}

// checkFrame holds one frame of the event stream to the recorded schemas of its type.
func checkFrame(text string) error {
	var f struct{ Type string }
	var value any
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	names := recorded().Events[f.Type]
	if len(names) == 0 {
		return fmt.Errorf("no event of type %q was recorded", f.Type)
	}
	var err error
	for _, name := range names {
		if err = fits(recorded().Schemas[name], value, "$"); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w\n%s", err, text)
}

// fits checks value against the subset of JSON Schema that the recorded document uses.
func fits(schema, value any, where string) error {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil // true
	}
	for key := range s {
		if !slices.Contains([]string{"$ref", "additionalProperties", "allOf", "anyOf", "description", "enum", "exclusiveMinimum", "items",
			"minItems", "minimum", "pattern", "patternProperties", "prefixItems", "properties", "required", "type"}, key) {
			return fmt.Errorf("%s: this test does not know the keyword %q", where, key)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		target, ok := recorded().Schemas[ref[strings.LastIndex(ref, "/")+1:]]
		if !ok {
			return fmt.Errorf("%s: %s is not recorded", where, ref)
		}
		return fits(target, value, where)
	}
	if list, ok := s["allOf"].([]any); ok {
		for _, part := range list {
			if err := fits(part, value, where); err != nil {
				return err
			}
		}
	}
	if list, ok := s["anyOf"].([]any); ok {
		var last error
		if !slices.ContainsFunc(list, func(part any) bool { last = fits(part, value, where); return last == nil }) {
			return fmt.Errorf("%s fits none of its forms; the last: %w", where, last)
		}
	}
	if list, ok := s["enum"].([]any); ok && !slices.Contains(list, value) {
		return fmt.Errorf("%s: %v is none of %v", where, value, list)
	}
	if kind, ok := s["type"].(string); ok && !isType(kind, value) {
		return fmt.Errorf("%s: %v is no %s", where, value, kind)
	}
	return fitsInside(s, value, where)
}

// fitsInside checks what depends on the value's type.
func fitsInside(s map[string]any, value any, where string) error {
	switch v := value.(type) {
	case string:
		if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			return fmt.Errorf("%s: %q does not match %s", where, v, pattern)
		}
	case float64:
		if least, ok := s["minimum"].(float64); ok && v < least {
			return fmt.Errorf("%s: %v is below %v", where, v, least)
		}
		if least, ok := s["exclusiveMinimum"].(float64); ok && v <= least {
			return fmt.Errorf("%s: %v is not above %v", where, v, least)
		}
	case []any:
		if least, ok := s["minItems"].(float64); ok && float64(len(v)) < least {
			return fmt.Errorf("%s: %d items are too few", where, len(v))
		}
		for i, item := range v {
			if err := fits(s["items"], item, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		return fitsObject(s, v, where)
	}
	return nil
}

func fitsObject(s, object map[string]any, where string) error {
	required, _ := s["required"].([]any)
	for _, key := range required {
		if _, ok := object[key.(string)]; !ok {
			return fmt.Errorf("%s: %v is missing", where, key)
		}
	}
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for key, item := range object {
		schema, known := properties[key]
		for pattern, other := range patterns {
			if regexp.MustCompile(pattern).MatchString(key) {
				schema, known = other, true
			}
		}
		if !known {
			if schema = s["additionalProperties"]; schema == false {
				return fmt.Errorf("%s: the real server sends no %q", where, key)
			}
		}
		if err := fits(schema, item, where+"."+key); err != nil {
			return err
		}
	}
	return nil
}

func isType(kind string, value any) bool {
	switch v := value.(type) {
	case nil:
		return kind == "null"
	case bool:
		return kind == "boolean"
	case string:
		return kind == "string"
	case float64:
		return kind == "number" || kind == "integer" && v == math.Trunc(v)
	case []any:
		return kind == "array"
	default:
		return kind == "object"
	}
}
