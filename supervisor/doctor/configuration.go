package doctor

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"intermission/platform"
)

func (c *collection) gatherConfiguration() {
	text, cut, err := platform.ReadTail(c.paths.ConfigFile, maxConfig, true)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		c.lack("config.toml: %v", err)
		return
	case cut:
		c.lack("config.toml: it is too large")
		return
	}
	shown := c.withoutValues(string(text))
	c.add("config.toml", []byte(shown))
}

// withoutValues takes out of a configuration the values of environments, and the
// user's own text for sessions. What is no TOML keeps its keys only. Comments are
// left out: a password may stand in one, with nothing that says so.
func (c *collection) withoutValues(text string) string {
	var tree map[string]any
	if toml.Unmarshal([]byte(text), &tree) != nil {
		return keysOnly(text)
	}
	c.hide(tree)
	shown, err := toml.Marshal(tree)
	if err != nil {
		return keysOnly(text)
	}
	return string(shown)
}

// hide replaces values, wherever a table of that name stands: it may stand at the wrong place.
func (c *collection) hide(tree map[string]any) {
	for key, v := range tree {
		table, isTable := v.(map[string]any)
		switch name := strings.ToLower(key); {
		case name == "environment" || name == "env":
			tree[key] = c.masked(v)
		case name == "text" && !c.prompts:
			if s, ok := v.(string); ok {
				c.text(s)
			}
			tree[key] = leftOut
		case isTable:
			c.hide(table)
		}
	}
}

// masked is a table with its values replaced; what is no table goes whole.
func (c *collection) masked(v any) any {
	table, ok := v.(map[string]any)
	if !ok {
		c.secrets.addValues("environment", v)
		return gone
	}
	for name, v := range table {
		c.secrets.addValues("environment", v)
		if s, ok := v.(string); ok {
			c.secrets.addVariable(name, s)
		}
		table[name] = gone
	}
	return table
}

var (
	tomlKey     = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_.-]+)[ \t]*=`)
	tomlSection = regexp.MustCompile(`^[ \t]*(\[{1,2}[A-Za-z0-9_. -]+\]{1,2})[ \t]*(#.*)?$`)
)

// keysOnly keeps the lines of a text and in them what are surely keys and sections.
func keysOnly(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := tomlKey.FindStringSubmatch(line); m != nil {
			line = m[1] + " = " + gone
		} else if m := tomlSection.FindStringSubmatch(line); m != nil {
			line = m[1]
		} else if strings.TrimSpace(line) != "" {
			line = leftOut
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
