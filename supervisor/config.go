package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"intermission/platform"

	"github.com/dustin/go-humanize"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Config is the configuration file, every key with its default filled in.
type Config struct {
	Server ServerConfig
	Resume ResumeConfig
	Notify NotifyConfig
	Log    LogConfig
}

// ServerConfig is how the managed server is started and stopped.
type ServerConfig struct {
	Command      []string          // empty: found on the login shell's PATH
	Generation   string            // auto, v1, v2
	Port         int               // v1 only; 0 takes a free one
	Environment  map[string]string // added to the server's environment
	ReadyTimeout time.Duration
	StopTimeout  time.Duration
}

// ResumeConfig is how sessions are resumed.
type ResumeConfig struct {
	Concurrency int    // sessions that we resumed and that execute at once, 1 to 64
	Text        string // what is told to a session that can't be resumed without a text
}

// NotifyConfig is what the tray notifies of.
type NotifyConfig struct {
	Enabled    bool
	Quiet      []QuietHours
	StallAfter time.Duration // a session that shows no progress for so long is stalled
}

// QuietHours is a daily time without notifications, in minutes since midnight,
// local time. From is included, To is not; a To before From is on the next day.
type QuietHours struct{ From, To int }

// LogConfig bounds each log: ours, and the server's output.
type LogConfig struct {
	MaxSize int64 // bytes of one file
	Keep    int   // rotated files that are kept beside it; 0 keeps none
}

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

// DefaultConfig is the configuration where the file says nothing.
func DefaultConfig() Config {
	return Config{
		Server: ServerConfig{Generation: "auto", ReadyTimeout: 60 * time.Second, StopTimeout: 20 * time.Second},
		// The text that the server itself uses for a restart, see OpenCode 2.1.
		Resume: ResumeConfig{Concurrency: 4, Text: "Continue from where you left off. Do not repeat completed work."},
		Notify: NotifyConfig{Enabled: true, Quiet: []QuietHours{{From: 22 * 60, To: 7 * 60}}, StallAfter: 30 * time.Minute},
		Log:    LogConfig{MaxSize: 10_000_000, Keep: 5},
	}
}

// LoadConfig reads the configuration file at path; no such file is the default
// configuration. Its error names file, line and key of everything that is wrong,
// each with what would be right.
func LoadConfig(path string) (Config, error) {
	doc, err := platform.ReadTrusted(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultConfig(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	return parseConfig(path, doc)
}

// parseConfig reads doc; name is what errors call it.
func parseConfig(name string, doc []byte) (Config, error) {
	var tree map[string]any
	if err := toml.Unmarshal(doc, &tree); err != nil {
		line := 1
		var at *toml.DecodeError
		if errors.As(err, &at) {
			line, _ = at.Position()
		}
		return Config{}, fmt.Errorf("%s:%d: %s; see https://toml.io", name, line, strings.TrimPrefix(err.Error(), "toml: "))
	}
	c := DefaultConfig()
	var faults []configFault
	known := configSettings(&c)
	for section, v := range tree {
		keys, isTable := v.(map[string]any)
		switch {
		case known[section] == nil:
			faults = append(faults, configFault{[]string{section}, fmt.Sprintf("unknown section [%s]; known sections: %s", section, keyNames(known))})
		case !isTable:
			faults = append(faults, configFault{[]string{section}, fmt.Sprintf("%s: must be a section: [%s]", section, section)})
		}
		for key, v := range keys {
			if known[section] == nil {
				break
			}
			s, ok := known[section][key]
			switch {
			case !ok:
				faults = append(faults, configFault{[]string{section, key}, fmt.Sprintf("unknown key %q in [%s]; known keys: %s", key, section, keyNames(known[section]))})
			case !s.set(v):
				faults = append(faults, configFault{[]string{section, key}, fmt.Sprintf("%s: %s is not %s", key, quoteValue(v), s.want)})
			}
		}
	}
	if len(faults) > 0 {
		return Config{}, locateFaults(name, doc, faults)
	}
	return c, nil
}

// configSetting is one key: what it takes, in words, and how it is taken. set tells
// whether the value was a good one.
type configSetting struct {
	want string
	set  func(v any) bool
}

// configSettings are all sections and keys, bound to c.
func configSettings(c *Config) map[string]map[string]configSetting {
	return map[string]map[string]configSetting{
		"server": {
			"command":       {`a list of a program and its arguments, like ["opencode", "serve"]`, takeCommand(&c.Server.Command)},
			"generation":    {`"auto", "v1" or "v2"`, takeOneOf(&c.Server.Generation, "auto", "v1", "v2")},
			"port":          {"a number from 0 to 65535", takeNumber(&c.Server.Port, 0, math.MaxUint16)},
			"environment":   {`a table of names and texts, like { HTTPS_PROXY = "http://proxy:3128" }`, takeEnvironment(&c.Server.Environment)},
			"ready_timeout": {`a duration like "60s"`, takeDuration(&c.Server.ReadyTimeout)},
			"stop_timeout":  {`a duration like "20s"`, takeDuration(&c.Server.StopTimeout)},
		},
		"resume": {
			"concurrency": {"a number from 1 to 64", takeNumber(&c.Resume.Concurrency, 1, 64)},
			"text":        {"a text that isn't empty", takeText(&c.Resume.Text)},
		},
		"notify": {
			"enabled":     {"true or false", takeBool(&c.Notify.Enabled)},
			"quiet":       {`a list of times like ["22:00-07:00"]`, takeQuiet(&c.Notify.Quiet)},
			"stall_after": {`a duration like "30m"`, takeDuration(&c.Notify.StallAfter)},
		},
		"log": {
			"max_size": {`a size like "10MB"`, takeSize(&c.Log.MaxSize)},
			"keep":     {"a number from 0 to 1000", takeNumber(&c.Log.Keep, 0, 1000)},
		},
	}
}

func takeCommand(to *[]string) func(any) bool {
	return func(v any) bool {
		words, ok := asTexts(v)
		if !ok || len(words) == 0 || strings.TrimSpace(words[0]) == "" {
			return false
		}
		*to = words
		return true
	}
}

func takeOneOf(to *string, choices ...string) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		if !ok || !slices.Contains(choices, s) {
			return false
		}
		*to = s
		return true
	}
}

func takeNumber(to *int, least, most int64) func(any) bool {
	return func(v any) bool {
		n, ok := v.(int64)
		if !ok || n < least || n > most {
			return false
		}
		*to = int(n)
		return true
	}
}

func takeEnvironment(to *map[string]string) func(any) bool {
	return func(v any) bool {
		table, ok := v.(map[string]any)
		if !ok {
			return false
		}
		env := make(map[string]string, len(table))
		for name, v := range table {
			s, ok := v.(string)
			if !ok || name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(s, "\x00") {
				return false
			}
			env[name] = s
		}
		*to = env
		return true
	}
}

func takeDuration(to *time.Duration) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		if !ok {
			return false
		}
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return false
		}
		*to = d
		return true
	}
}

func takeText(to *string) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		if !ok || strings.TrimSpace(s) == "" {
			return false
		}
		*to = s
		return true
	}
}

func takeBool(to *bool) func(any) bool {
	return func(v any) bool {
		b, ok := v.(bool)
		if ok {
			*to = b
		}
		return ok
	}
}

func takeQuiet(to *[]QuietHours) func(any) bool {
	return func(v any) bool {
		ranges, ok := asTexts(v)
		if !ok {
			return false
		}
		hours := make([]QuietHours, 0, len(ranges))
		for _, r := range ranges {
			from, till, _ := strings.Cut(r, "-")
			a, errA := time.Parse("15:04", from)
			b, errB := time.Parse("15:04", till)
			if errA != nil || errB != nil || a.Equal(b) || len(from) != 5 || len(till) != 5 {
				return false
			}
			hours = append(hours, QuietHours{From: a.Hour()*60 + a.Minute(), To: b.Hour()*60 + b.Minute()})
		}
		*to = hours
		return true
	}
}

func takeSize(to *int64) func(any) bool {
	return func(v any) bool {
		s, ok := v.(string)
		if !ok {
			return false
		}
		n, err := humanize.ParseBytes(s)
		if err != nil || n == 0 || n > math.MaxInt64 {
			return false
		}
		*to = int64(n)
		return true
	}
}

func asTexts(v any) ([]string, bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, ok := v.(string)
		if !ok || strings.Contains(s, "\x00") {
			return nil, false
		}
		out = append(out, s)
	}
	return out, true
}

// quoteValue is a value as an error quotes it, cut to one short line.
func quoteValue(v any) string {
	const most = 60
	var s string
	switch v := v.(type) {
	case string:
		s = strconv.Quote(v)
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = quoteValue(item)
		}
		s = "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		s = "this table"
	default: // numbers, dates
		s = fmt.Sprint(v)
	}
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return s
}

func keyNames[V any](m map[string]V) string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return strings.Join(keys, ", ")
}

// configFault is something wrong at a key.
type configFault struct {
	key     []string
	message string
}

// locateFaults words the faults with their lines, in the order of the file.
func locateFaults(name string, doc []byte, faults []configFault) error {
	places := keyLines(doc)
	lineOf := func(f configFault) int {
		for n := len(f.key); n > 0; n-- {
			if line, ok := places[strings.Join(f.key[:n], "\x00")]; ok {
				return line
			}
		}
		return 1
	}
	slices.SortFunc(faults, func(a, b configFault) int {
		if d := lineOf(a) - lineOf(b); d != 0 {
			return d
		}
		return strings.Compare(a.message, b.message)
	})
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = fmt.Errorf("%s:%d: %s", name, lineOf(f), f.message)
	}
	return errors.Join(errs...)
}

// keyLines gives the line of each key and section of a well-formed document, by
// its path joined with NUL. Decoding to a map loses them.
func keyLines(doc []byte) map[string]int {
	lines := map[string]int{}
	var p unstable.Parser
	p.Reset(doc)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = keyPath(&p, e, nil, lines)
		case unstable.KeyValue:
			noteKeys(&p, e, table, lines)
		}
	}
	return lines
}

// noteKeys records a key, and those of the inline table that it holds.
func noteKeys(p *unstable.Parser, kv *unstable.Node, under []string, lines map[string]int) {
	path := keyPath(p, kv, under, lines)
	if v := kv.Value(); v.Kind == unstable.InlineTable {
		for it := v.Children(); it.Next(); {
			noteKeys(p, it.Node(), path, lines)
		}
	}
}

func keyPath(p *unstable.Parser, n *unstable.Node, under []string, lines map[string]int) []string {
	path := slices.Clone(under)
	for it := n.Key(); it.Next(); {
		path = append(path, string(it.Node().Data))
		at := strings.Join(path, "\x00")
		if _, seen := lines[at]; !seen {
			lines[at] = lineOfKey(p, it.Node())
		}
	}
	return path
}

func lineOfKey(p *unstable.Parser, key *unstable.Node) int {
	return 1 + bytes.Count(p.Data()[:key.Raw.Offset], []byte("\n"))
}
