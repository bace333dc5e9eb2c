package platform

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// SystemdOptions tells the units apart.
type SystemdOptions struct {
	User string // of a system unit: whom it runs as; "" makes a user unit
	Home string // of that user, absolute; it must be mounted before the start
}

// versionKey holds our version in a unit. systemd ignores keys that begin with X-.
const versionKey = "X-Intermission-Version="

// systemdWatchdog is within what time a supervisor must say that it isn't stuck.
const systemdWatchdog = 60 * time.Second

// SupervisorService is the service as each installation and each package has it:
// the program "PROGRAM run --service".
func SupervisorService(program, version string) Service {
	return Service{
		Name:    app,
		Title:   "Intermission",
		Comment: "Keeps the OpenCode server running, and asks before a session goes on",
		Argv:    []string{program, "run", "--service"},
		Version: version,
	}
}

// PackagedUnit is the text of the user unit that a package installs as
// /usr/lib/systemd/user/intermission.service, for /usr/bin/intermission.
func PackagedUnit(version string) (string, error) {
	return SystemdUnit(SupervisorService("/usr/bin/"+app, version), SystemdOptions{})
}

// SystemdUnit words the service as a systemd unit (systemd 239 and later). What
// can't stand in one, such as a line break, is an error.
//
// Each key is there for the order at the end, in which the supervisor alone is
// told, suspends, and stops its server, or so that the server outlives a
// supervisor that died:
//
//   - KillMode=process: SIGTERM, and after TimeoutStopSec SIGKILL, go to the
//     supervisor only. The default sends both to the server in the same moment.
//   - OOMPolicy=continue: a tool that was killed for its memory doesn't stop the rest.
//   - TimeoutAbortSec: a supervisor that is stuck is replaced soon. SIGABRT, which
//     the watchdog sends, goes to it alone as well.
//   - RestartForceExitStatus: a supervisor that handed over has its successor at once.
//     A clean exit is an end that somebody wanted: no restart.
//   - StartLimitIntervalSec=0: systemd never gives up. A server whose supervisor died
//     works on unguarded, until the configuration, say, that keeps the next one from
//     starting is mended; then that must start by itself.
//   - TimeoutStartSec and TimeoutStopSec are written out since distributions shorten
//     the defaults. The supervisor lengthens the start as it needs.
//
// And some are not there on purpose. UMask=, sandboxing and resource limits would
// hold for the server too, and so for the user's work in its sessions.
// RuntimeDirectory= would be removed at each stop. StandardOutput= stays with the
// journal. After=graphical-session.target would make the end of a desktop ours.
func SystemdUnit(s Service, o SystemdOptions) (string, error) {
	text, err := systemdUnit(s, o)
	if err != nil {
		return "", fmt.Errorf("cannot write a systemd unit: %w", err)
	}
	return text, nil
}

func systemdUnit(s Service, o SystemdOptions) (string, error) {
	command, err := systemdCommand(s.Argv)
	if err != nil {
		return "", err
	}
	environment, err := systemdEnvironment(s.Env)
	if err != nil {
		return "", err
	}
	for _, line := range []string{s.Title, s.Comment, s.Version} {
		if err := systemdText(line); err != nil {
			return "", err
		}
		if strings.HasSuffix(line, `\`) {
			return "", fmt.Errorf("%q ends with a backslash, which would join it to the next line", line)
		}
	}
	edit := "systemctl --user edit " + s.Name
	if o.User != "" {
		edit = "systemctl edit " + s.Name
	}
	unit := []string{
		"# Written by intermission " + s.Version + ". An update writes it anew: settings of your",
		"# own belong into a drop-in (" + edit + ").",
		"[Unit]",
		"Description=" + systemdSpecifiers(cmp.Or(s.Comment, s.Title)), // the title is the unit's name
		"Documentation=man:intermission(1)",
		versionKey + s.Version,
		"StartLimitIntervalSec=0",
	}
	service := []string{
		"", "[Service]",
		"Type=notify",
		"NotifyAccess=main",
		"ExecStart=" + command,
	}
	target := "default.target"
	if o.User == "" {
		unit = append(unit, "ConditionUser=!root") // also where it is enabled for all users
	} else {
		if err := systemdUserName(o.User); err != nil {
			return "", err
		}
		home, err := systemdQuote(o.Home, systemdSpecifiers)
		if err != nil || !path.IsAbs(o.Home) {
			return "", errors.Join(fmt.Errorf("%q can't be the home directory of %s", o.Home, o.User), err)
		}
		unit = append(unit, "After=network.target", "RequiresMountsFor="+home)
		service = append(service, "User="+o.User, "WorkingDirectory=~")
		target = "multi-user.target"
	}
	service = append(service, environment...)
	service = append(service,
		"Restart=on-failure",
		"RestartSec=1",
		fmt.Sprintf("RestartForceExitStatus=%d", HandedOverStatus),
		fmt.Sprintf("SuccessExitStatus=%d", HandedOverStatus),
		"KillMode=process",
		"OOMPolicy=continue",
		"TimeoutStartSec=90",
		fmt.Sprintf("TimeoutStopSec=%.0f", ServiceStopLimit.Seconds()),
		"TimeoutAbortSec=10",
		fmt.Sprintf("WatchdogSec=%.0f", systemdWatchdog.Seconds()),
		"", "[Install]",
		"WantedBy="+target,
	)
	return strings.Join(append(unit, service...), "\n") + "\n", nil
}

// Paths are Linux's also where a package is built on another system.
//
// The quoting follows systemd.syntax(7), systemd.service(5) under "Command lines",
// and how systemd 252 reads it: a line is split into quoted words with C escapes,
// then the specifiers (%) of each word are put in, and at the start the variables
// ($) of a command's words.

func systemdSpecifiers(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func systemdVariables(s string) string {
	return systemdSpecifiers(strings.ReplaceAll(s, "$", "$$"))
}

// systemdQuote makes one word of s, in which systemd finds nothing but s.
func systemdQuote(s string, escape func(string) string) (string, error) {
	if err := systemdText(s); err != nil {
		return "", err
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(escape(s)) + `"`, nil
}

func systemdCommand(argv []string) (string, error) {
	if len(argv) == 0 || !path.IsAbs(argv[0]) || strings.HasSuffix(argv[0], "/") {
		return "", fmt.Errorf("%q: the program's path must be absolute", argv)
	}
	if strings.ContainsAny(argv[0], `"'\`) {
		return "", fmt.Errorf("systemd takes no quote and no backslash in the path of a program; move %s elsewhere", argv[0])
	}
	var words []string
	for i, arg := range argv {
		escape := systemdVariables
		// The program's own path isn't searched for variables, so that a doubled $
		// would stay doubled. ":" (systemd 244) ends the search in the others too.
		if i == 0 || strings.Contains(argv[0], "$") {
			escape = systemdSpecifiers
		}
		word, err := systemdQuote(arg, escape)
		if err != nil {
			return "", err
		}
		words = append(words, word)
	}
	if plainWord(argv[0]) {
		words[0] = argv[0]
	}
	for i, arg := range argv[1:] {
		if plainWord(arg) {
			words[i+1] = arg
		}
	}
	command := strings.Join(words, " ")
	if strings.Contains(argv[0], "$") {
		command = ":" + command
	}
	return command, nil
}

// plainWord tells whether a word reads better without quotes, and means the same.
func plainWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-=", r))
	})
}

// systemdEnvironment are the lines for the variables, in the order of their names.
func systemdEnvironment(env map[string]string) (lines []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variableName(name) {
			return nil, fmt.Errorf("%q is no name of a variable", name)
		}
		word, err := systemdQuote(name+"="+env[name], systemdSpecifiers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		lines = append(lines, "Environment="+word)
	}
	return lines, nil
}

func variableName(s string) bool {
	return s != "" && (s[0] < '0' || s[0] > '9') && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
	})
}

// systemdUserName refuses names that systemd refuses or expands. What is a number
// would be taken for a user id.
func systemdUserName(s string) error {
	digits := strings.Trim(s, "0123456789") == ""
	if digits || strings.HasPrefix(s, "-") || systemdText(s) != nil || strings.ContainsAny(s, "%:/\\\"'$ #") {
		return fmt.Errorf("%q can't be the user of a service", s)
	}
	return nil
}

// systemdText refuses what systemd doesn't take in a line: it ignores a line that
// isn't valid UTF-8 by its own measure, which has no noncharacters. Control
// characters would be possible as escapes, and are nobody's path.
func systemdText(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q isn't UTF-8, which a unit must be", s)
	}
	for _, r := range s {
		switch {
		case r < ' ' || r == 0x7f:
			return fmt.Errorf("%q: a control character can't stand in a unit", s)
		case r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe:
			return fmt.Errorf("%q: a noncharacter can't stand in a unit", s)
		}
	}
	return nil
}
