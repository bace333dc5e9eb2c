package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"intermission/platform"
	"intermission/restart"
	"intermission/supervisor/control"
)

// collection is a bundle in the making. What is in it is redacted at the end, when
// all secrets and texts are known.
type collection struct {
	*patient
	prompts bool
	secrets secrets
	files   []file
	without []string
}

func (c *collection) add(name string, data []byte) { c.files = append(c.files, file{name, data}) }

func (c *collection) addJSON(name string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		c.lack("%s: %v", name, err)
		return
	}
	c.add(name, b.Bytes())
}

// lack notes what isn't there.
func (c *collection) lack(format string, args ...any) {
	c.without = append(c.without, fmt.Sprintf(format, args...))
}

// Bounds of what is taken, in bytes.
const (
	logTail        = 1 << 20
	definitionMost = 64 << 10
)

func (c *collection) gather(ctx context.Context, r Report) {
	c.add("doctor.txt", []byte(r.System+"\nintermission "+r.Version+"\n\n"+r.Text(false)))
	c.addJSON("doctor.json", r)
	if c.noPaths != nil {
		c.lack("all that is in our files: %v", c.noPaths)
		return
	}
	c.gatherStatus(ctx)
	c.gatherService()
	c.gatherConfiguration()
	c.gatherLedger(ctx)
	c.gatherFile("wish.txt", filepath.Join(c.paths.State, "wish"), false)
	c.gatherFile("program.json", filepath.Join(c.paths.State, "program.json"), false)
	for _, name := range []string{"intermission.log", "tray.log", "start.log"} {
		c.gatherFile("log/"+name, filepath.Join(c.paths.Log, name), true)
	}
	output := filepath.Join(c.paths.Log, "server.log")
	if c.prompts {
		c.gatherFile("log/server.log", output, true)
		return
	}
	c.lack("log/server.log: it may hold what was said in sessions; add it with --prompts")
	// Our log quotes its last lines when the server dies.
	said, _, _ := platform.ReadTail(output, definitionMost, false)
	c.secrets.texts = append(c.secrets.texts, string(said))
}

// gatherFile takes the end of a file. A line that is cut isn't taken: half a
// password can't be recognised.
func (c *collection) gatherFile(name, path string, ours bool) {
	data, cut, err := platform.ReadTail(path, logTail, false)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.lack("%s: %v", name, err)
		return
	}
	if cut {
		_, data, _ = bytes.Cut(data, []byte("\n"))
		c.lack("%s: all but its last %d kB", name, logTail>>10)
	}
	if ours && !c.prompts {
		data = quotedTitle.ReplaceAll(data, []byte("${1}"+leftOut))
	}
	c.add(name, data)
}

// quotedTitle is a title in a log of ours, of a session or of a notification.
var quotedTitle = regexp.MustCompile(`\b(title=)(?:"(?:[^"\\]|\\.)*"|\S+)`)

func (c *collection) gatherStatus(ctx context.Context) {
	st, err := c.status()
	if err != nil {
		c.lack("status.json and pending.json: %v", err)
		return
	}
	if c.prompts {
		c.addJSON("status.json", st)
	} else {
		c.addJSON("status.json", c.statusWithoutTexts(st))
	}
	client := control.Dial(c.paths.LiveSocket())
	defer client.Close()
	pending, err := client.Pending(ctx)
	if err != nil {
		c.lack("pending.json: %v", err)
		return
	}
	if !c.prompts {
		for i, s := range pending.Pending {
			pending.Pending[i] = c.suspensionWithoutTexts(s)
		}
	}
	c.addJSON("pending.json", pending)
}

// text notes what was said in a session, so that it is found wherever it stands.
func (c *collection) text(s string) { c.secrets.texts = append(c.secrets.texts, s) }

func (c *collection) statusWithoutTexts(st control.Status) control.Status {
	working := make([]control.Working, len(st.Sessions.Working))
	for i, w := range st.Sessions.Working {
		c.text(w.Title)
		w.Title = leftOut
		working[i] = w
	}
	st.Sessions.Working = working
	if st.Server.LastExit != nil {
		exit := *st.Server.LastExit
		for _, line := range exit.Output {
			c.text(line)
			for _, line := range []string{restart.PlainText(line, len(line)), strings.TrimSpace(line)} {
				if line != "" { // the reason quotes them
					st.Server.Reason = strings.ReplaceAll(st.Server.Reason, line, leftOut)
				}
			}
		}
		exit.Output = nil
		st.Server.LastExit = &exit
	}
	return st
}

func (c *collection) suspensionWithoutTexts(s control.Suspension) control.Suspension {
	c.text(s.Title)
	s.Title = leftOut
	if s.LastPrompt != nil {
		c.text(s.LastPrompt.Text)
		s.LastPrompt = &restart.Prompt{Text: leftOut, At: s.LastPrompt.At}
	}
	if s.LastTool != nil {
		c.text(s.LastTool.Input)
		s.LastTool = &restart.Tool{Name: s.LastTool.Name, Input: leftOut, Status: s.LastTool.Status}
	}
	jobs := make([]control.Job, len(s.Jobs))
	for i, j := range s.Jobs {
		c.text(j.Text)
		j.Text = leftOut
		jobs[i] = j
	}
	s.Jobs = jobs
	return s
}

func (c *collection) gatherService() {
	s, err := c.service()
	if err != nil {
		c.lack("service.json: %v", err)
		return
	}
	c.addJSON("service.json", s)
	if !filepath.IsAbs(s.Definition) {
		return
	}
	text, _, err := platform.ReadTail(s.Definition, definitionMost, true)
	if err != nil {
		c.lack("the definition of the service: %v", err)
		return
	}
	c.add("service-definition.txt", text)
}

// redacted gives the files as they go into the archive, the first of which tells
// what is in it. Every byte passes through here.
func (c *collection) redacted() (files []file, without []string) {
	c.lack("passwords, keys and tokens, which are replaced by %s; your home directory (~) and your name", gone)
	if !c.prompts {
		c.lack("titles, prompts, inputs of tools and texts of jobs, which are replaced by %s", leftOut)
	} else {
		c.secrets.texts = nil
	}
	r := newRedactor(c.secrets)
	for _, w := range c.without {
		without = append(without, restart.PlainText(r.text(w), maxDetail))
	}
	readme := "What this is: what `intermission doctor --bundle` has found, for those who help.\n" +
		"Look through it before you send it. Nothing of it was sent anywhere.\n\nNot in it:\n"
	for _, w := range without {
		readme += "  - " + w + "\n"
	}
	readme += "\nIn it:\n"
	for _, f := range c.files {
		readme += "  - " + f.name + "\n"
	}
	files = append([]file{{"README.txt", []byte(readme)}}, c.files...)
	var each sync.WaitGroup // a long log takes seconds
	for i := range files {
		each.Go(func() {
			text := r.text(string(files[i].data))
			if json.Valid([]byte(text)) {
				text = control.EscapeUnseen(text)
			}
			files[i].data = []byte(text)
		})
	}
	each.Wait()
	return files, without
}
