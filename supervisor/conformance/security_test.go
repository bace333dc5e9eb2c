//go:build linux

package conformance

import (
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"intermission/supervisor/control"
	"intermission/tray"
)

// hostile is what a session, or a server, may say to steer a terminal, to hide what it
// says, or to forge a line of ours. The word in it tells that it was shown at all.
const hostile = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x1b[31m\x1bP1$r\x1b\\\u009b2J\u009d0;owned\u009c\u202eplanted\u2066\u200b\x7f\x08\r\nses_forged  resumed"

// hostileInput is as bad, and can stand in a script of the dev server.
const hostileInput = "\u009d52;c;b3duZWQ=\u009c\u009b2J\x1bc\x07\x08\u202eplanted\u2066"

// managed is a service manager: it hears what the supervisor tells it.
type managed struct {
	path string
	mu   sync.Mutex
	said []string
}

func newManaged(t testing.TB, path string) *managed {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m := &managed{path: path}
	go func() { // ends with the socket
		buf := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said = append(m.said, string(buf[:n]))
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *managed) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.said, "\n")
}

// showings collects what was shown to whom.
type showings map[string]string

// terminal runs a command in a terminal to its end.
func (out showings) terminal(t testing.TB, s *sandbox, args ...string) {
	t.Helper()
	tty := s.inTerminal(t, program, args...)
	tty.wait(t)
	last := ""
	eventually(t, "all of the output", func() error { // what was written last may be on its way
		tty.mu.Lock()
		defer tty.mu.Unlock()
		now := string(tty.output)
		if now == "" || now != last {
			last = now
			return errors.New("there is more")
		}
		return nil
	})
	out["terminal: "+strings.Join(args, " ")] = strings.ReplaceAll(last, "\r\n", "\n")
}

// check wants text that steers nothing, and holds no secret.
func (out showings) check(t testing.TB, secrets ...string) {
	t.Helper()
	for where, text := range out {
		for line := range strings.SplitSeq(text, "\n") {
			steers := func(r rune) bool { return unicode.IsControl(r) && r != '\t' || unicode.Is(unicode.Bidi_Control, r) }
			if !utf8.ValidString(line) || strings.ContainsFunc(line, steers) {
				t.Errorf("%s: %.300q", where, line)
				break
			}
			if strings.HasPrefix(strings.TrimSpace(line), "ses_forged") && where != "terminal: logs" { // whose lines are the server's
				t.Errorf("%s has a forged line: %q", where, line)
			}
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the password", where)
			}
		}
	}
}

// writable opens the server's database as the server does, to say what it may say.
func writable(t testing.TB, name string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: name, RawQuery: "_pragma=busy_timeout(5000)"}).String())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

// unpacked gives the files of a bundle.
func unpacked(t testing.TB, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, file := range z.File {
		in, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
		files[file.Name] = string(text)
	}
	return files
}

// TestWhatSessionsSaySteersNothing has a server whose output, titles, prompts, tools,
// directories and errors are hostile, and looks at all that is shown of it to anybody:
// commands in a terminal and as JSON, menu and notifications, logs, the service
// manager's status, the bundle. The supervisor is started with a umask that hides
// nothing, and leaves nothing open to others all the same; and nothing anywhere holds
// the server's password but what has to.
func TestWhatSessionsSaySteersNothing(t *testing.T) {
	t.Parallel()
	u := newUser(t, newClaims)
	shim := u.path("home", "shim")
	u.write(t, "#!/bin/sh\n[ \"$1\" != serve ] || printf '%s\\n' '"+hostile+"'\nexec "+program+" devserver \"$@\"\n", "home", "shim")
	if err := os.Chmod(shim, 0o700); err != nil {
		t.Fatal(err)
	}
	u.write(t, fmt.Sprintf("[server]\ncommand = [%q, \"serve\", \"--service\"]\n", shim), "config", "intermission", "config.toml")
	manager := newManaged(t, u.path("manager"))
	u.supervisor = u.start(t, []string{"NOTIFY_SOCKET=" + manager.path}, "/bin/sh", "-c", `umask 0; exec "$0" "$@"`, program, "run", "--service")
	u.serving(t)
	a := u.client(t)

	works := u.project(t, "placed\x1b]0;owned\x07\u009b31m\u202e")
	command := toolCommand()
	busy, err := u.create(a, works)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.prompt(a, busy, hostile+" [[shell printf '"+hostileInput+"'; "+command+"]]", ""); err != nil {
		t.Fatal(err)
	}
	failing, err := u.create(a, u.project(t, "fails"))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.prompt(a, failing, "Please [[err "+hostileInput+"]]", ""); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tool", func() error {
		if len(u.running(command)) == 0 {
			return errors.New("it doesn't run")
		}
		return nil
	})
	db := writable(t, u.path("data", "opencode", "opencode.db"))
	if _, err := db.Exec("UPDATE session_v2 SET title = ?", hostile); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	out := showings{}
	r, err := u.bed.(*v2).registered()
	if err != nil || len(r.Password) < 20 {
		t.Fatalf("registered: %v", err)
	}
	secrets := []string{r.Password, base64.StdEncoding.EncodeToString([]byte("opencode:" + r.Password))}
	out.terminal(t, u.sandbox, "status")
	out.terminal(t, u.sandbox, "status", "--json")
	kill(t, u.serverPID(t))
	u.wantPending(t, work{id: busy, marker: "the busy one"})
	u.serving(t)
	later, err := u.bed.(*v2).registered()
	if err != nil {
		t.Fatal(err)
	}
	secrets = append(secrets, later.Password)
	for _, args := range [][]string{
		{"status"}, {"pending"}, {"show", busy}, {"logs"}, {"doctor"}, {"show", "\x1b]0;x\x07"}, {"interrupt", busy},
		{"resume", "--yes", busy}, // its directory is gone by then
		{"service", "status"}, {"dismiss", busy},
	} {
		if args[0] == "resume" {
			if err := os.RemoveAll(works); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the missing directory", func() error {
				if p := u.pending(t); len(p) != 1 || p[0].State != "blocked" {
					return fmt.Errorf("%+v", p)
				}
				return nil
			})
			out.menu(t, u)
			out.bundle(t, u)
		}
		if args[0] != "dismiss" {
			out.terminal(t, u.sandbox, append(slices.Clone(args), "--json")...)
		}
		out.terminal(t, u.sandbox, args...)
	}
	for _, planted := range []string{"terminal: pending", "terminal: pending --json", "terminal: show " + busy, "terminal: logs", "menu"} {
		if !strings.Contains(out[planted], "planted") {
			t.Errorf("%s shows nothing of it: %q", planted, out[planted])
		}
	}

	u.heldBySomebody(t, r.Password, later.Password)
	u.openToOthers(t)
	u.supervisor.end(t, syscall.SIGTERM)
	out["service manager"] = manager.all()
	for name, path := range map[string]string{"journal": u.supervisor.log, "log": u.path("state", "intermission", "log", "intermission.log")} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	if !strings.Contains(out["service manager"], "STATUS=running, 1 session pending") {
		t.Errorf("the service manager heard %q", out["service manager"])
	}
	if strings.Contains(out["journal"]+out["service manager"], "planted") {
		t.Errorf("what the server says is in the journal: %q", out["journal"])
	}
	out.check(t, secrets...)
}

// serverPID is the pid of the managed server.
func (u *user) serverPID(t testing.TB) int {
	t.Helper()
	return u.serving(t).Server.PID
}

// menu is what a tray shows, and notifies of.
func (out showings) menu(t testing.TB, u *user) {
	t.Helper()
	c := control.Dial(u.path("run", "intermission", "intermission.sock"))
	defer c.Close()
	enough := errors.New("enough")
	err := c.Watch(context.Background(), func(snap control.Snapshot) error {
		now := time.Now()
		s, effects := tray.Reduce(tray.State{Options: tray.Options{Notify: true, StallAfter: time.Hour}, Now: now}, tray.Input{At: now, Snapshot: &snap})
		s, more := tray.Reduce(s, tray.Input{At: now.Add(time.Minute)})
		for _, e := range append(effects, more...) {
			if e.Notice != nil {
				out["notification"] += e.Notice.Title + "\n" + e.Notice.Body + "\n"
			}
		}
		m, _ := tray.Model(s)
		text := []string{m.Title, m.Tooltip}
		var each func([]tray.Item)
		each = func(items []tray.Item) {
			for _, i := range items {
				if strings.Contains(i.Title, "\n") {
					t.Errorf("an item of two lines: %q", i.Title)
				}
				text = append(text, i.Title)
				each(i.Items)
			}
		}
		each(m.Items)
		out["menu"] = strings.Join(text, "\n")
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatalf("the menu: %v", err)
	}
}

// bundle is the archive for those who help, without and with what was said.
func (out showings) bundle(t testing.TB, u *user) {
	t.Helper()
	for _, more := range [][]string{nil, {"--prompts"}} {
		path := u.path("tmp", "bundle"+strings.Join(more, "")+".zip")
		u.exec(t, program, append([]string{"doctor", "--bundle", path}, more...)...)
		for name, text := range unpacked(t, path) {
			if len(more) == 0 && strings.Contains(text, "planted") {
				t.Errorf("the bundle's %s holds what was said", name)
			}
			if strings.HasSuffix(name, "server.log") || len(more) > 0 {
				continue // as it was written: who asks for it reads it with care
			}
			out["bundle: "+name] = text
		}
	}
}

// heldBySomebody looks for passwords in command lines and environments: v2 has them in files alone.
func (u *user) heldBySomebody(t testing.TB, passwords ...string) {
	t.Helper()
	for _, password := range passwords {
		home := []byte("HOME=" + u.path("home") + "\x00")
		if pids := processes(func(cmdline, environ []byte) bool {
			return bytes.Contains(environ, home) && (bytes.Contains(cmdline, []byte(password)) || bytes.Contains(environ, []byte(password)))
		}); len(pids) > 0 {
			t.Errorf("the password is in command line or environment of %v", pids)
		}
		err := filepath.WalkDir(u.root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.HasPrefix(path, u.path("data")) {
				return err
			}
			text, err := os.ReadFile(path)
			if bytes.Contains(text, []byte(password)) && path != u.path("state", "intermission", "server.json") && filepath.Dir(path) != u.path("state", "opencode") && filepath.Dir(path) != u.path("config", "opencode") {
				t.Errorf("the password is in %s", path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestThePasswordIsInTheServersEnvironmentAlone: v1 takes it from there, and what it starts inherits that.
func TestThePasswordIsInTheServersEnvironmentAlone(t *testing.T) {
	t.Parallel()
	u := newUser(t, newV1)
	server := u.up(t).Server.PID
	password := u.client(t).password
	for _, args := range [][]string{{"status"}, {"pending"}, {"doctor"}, {"doctor", "--bundle", u.path("tmp", "b.zip")}, {"logs"}, {"service", "status"}} {
		if r := u.exec(t, program, args...); strings.Contains(r.stdout+r.stderr, password) {
			t.Errorf("%q says the password", args)
		}
	}
	for name, text := range unpacked(t, u.path("tmp", "b.zip")) {
		if strings.Contains(text, password) {
			t.Errorf("the bundle's %s holds the password", name)
		}
	}
	holders := processes(func(cmdline, environ []byte) bool {
		return bytes.Contains(cmdline, []byte(password)) || bytes.Contains(environ, []byte(password))
	})
	if len(holders) == 0 || slices.ContainsFunc(holders, func(pid int) bool { return !descends(pid, server) }) {
		t.Errorf("%v hold the password; the server is %d", holders, server)
	}
}

// descends tells whether pid is ancestor or descends from it.
func descends(pid, ancestor int) bool {
	for ; pid > 1; pid = parentOf(pid) {
		if pid == ancestor {
			return true
		}
	}
	return false
}

func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}

// openToOthers looks at the modes of all that is ours.
func (u *user) openToOthers(t testing.TB) {
	t.Helper()
	seen := 0
	for _, dir := range []string{u.path("state", "intermission"), u.path("run", "intermission")} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			seen++
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if seen < 8 {
		t.Errorf("there are %d files of ours only", seen)
	}
}
