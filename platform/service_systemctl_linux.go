package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// systemctlLimit bounds each question to a manager, and each act that waits for nothing.
	systemctlLimit = 20 * time.Second
	// serviceStartLimit bounds a start, whose time the supervisor may extend.
	serviceStartLimit = 10 * time.Minute
)

// systemctl runs systemd's tools for one of its managers.
type systemctl struct {
	user bool
	env  []string
}

func (h serviceHost) systemctl(userManager bool) systemctl {
	c := systemctl{user: userManager, env: append(withoutManager(os.Environ()),
		"LC_ALL=C.UTF-8", "SYSTEMD_COLORS=0", "SYSTEMD_PAGER=", "SYSTEMD_URLIFY=0")}
	// A shell by su, sudo or cron has no runtime directory, or another user's; the user's manager is there all the same.
	if dir := filepath.Join(h.runtime, strconv.Itoa(h.uid)); userManager && h.getenv("XDG_RUNTIME_DIR") != dir {
		if _, err := os.Stat(filepath.Join(dir, "systemd", "private")); err == nil {
			c.env = append(c.env, "XDG_RUNTIME_DIR="+dir, "DBUS_SESSION_BUS_ADDRESS=unix:path="+dir+"/bus")
		}
	}
	return c
}

// command is how a person would call it.
func (c systemctl) command(args ...string) string {
	if c.user {
		return "systemctl --user " + strings.Join(args, " ")
	}
	return "systemctl " + strings.Join(args, " ")
}

// run runs systemctl. What it says on standard error is the error.
func (c systemctl) run(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	manager := "--system"
	if c.user {
		manager = "--user"
	}
	out, err := c.tool(ctx, limit, "systemctl", append([]string{manager, "--no-pager", "--no-ask-password"}, args...)...)
	if err != nil {
		words := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--") })
		err = fmt.Errorf("%s: %w", c.command(words...), err)
	}
	return out, err
}

func (c systemctl) tool(ctx context.Context, limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.env
	cmd.WaitDelay = time.Second // a child of it may hold the pipe
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		return stdout.String(), context.Cause(ctx)
	}
	if said := strings.Join(strings.FieldsFunc(stderr.String(), func(r rune) bool { return r == '\n' }), " "); said != "" {
		err = errors.New(said)
	}
	return stdout.String(), err
}

// show asks for properties. All of them are there in the answer.
func (c systemctl) show(ctx context.Context, unit string, names ...string) (map[string]string, error) {
	args := []string{"show", "--property=" + strings.Join(names, ",")}
	if unit != "" {
		args = append(args, "--", unit)
	}
	out, err := c.run(ctx, systemctlLimit, args...)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		values[name] = value
	}
	for _, name := range names {
		if _, ok := values[name]; !ok && unit == "" {
			return nil, fmt.Errorf("%s: no %s in the answer", c.command("show"), name)
		}
	}
	return values, nil
}

// unitPath is where the manager looks for units, the most important directory first.
func (c systemctl) unitPath(ctx context.Context) ([]string, error) {
	values, err := c.show(ctx, "", "UnitPath")
	if err != nil {
		return nil, err
	}
	return shellWords(values["UnitPath"]), nil
}

// shellWords splits what systemctl prints of a list: words with a special character
// stand in double quotes, with backslashes before what is special there.
func shellWords(s string) (words []string) {
	var word strings.Builder
	quoted, in := false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			word.WriteByte(s[i])
			in = true
		case c == '"':
			quoted, in = !quoted, true
		case c == ' ' && !quoted:
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteByte(c)
			in = true
		}
	}
	if in {
		words = append(words, word.String())
	}
	return words
}

// lastWords is the last line that the service itself wrote to the journal; "" when there is none to be had.
func (c systemctl) lastWords(ctx context.Context, unit string) string {
	args := []string{"--quiet", "--no-pager", "--lines=1", "--output=cat"}
	if c.user {
		args = append(args, "--user", "_SYSTEMD_USER_UNIT="+unit)
	} else {
		args = append(args, "_SYSTEMD_UNIT="+unit)
	}
	out, err := c.tool(ctx, systemctlLimit, "journalctl", args...)
	if err != nil {
		return ""
	}
	return lastLine(out)
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
