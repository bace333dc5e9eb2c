//go:build linux

package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// addUser makes the ordinary user, whose login shell knows where OpenCode is, and nobody else does.
func (m *machine) addUser(t *testing.T) {
	t.Helper()
	m.must(t, "useradd", "--create-home", "--shell", "/bin/bash", userName)
	uid, err := strconv.Atoi(m.must(t, "id", "-u", userName))
	if err != nil {
		t.Fatal(err)
	}
	m.uid = uid
	m.write(t, home+"/.bash_profile", "echo 'Welcome back.'\nexport PATH=\"$HOME/tools/bin:$PATH\" "+loginMark+"\n", 0o644)
}

// loginMark is a variable that the user's login shell sets.
const loginMark = "LAB_MARK='from the login shell'"

// session is a login of the user's: a login shell in a session of PAM's and logind's.
type session struct {
	m       *machine
	cmd     *exec.Cmd
	typed   io.WriteCloser
	printed *bufio.Scanner
	count   int
}

// login logs the user in.
func (m *machine) login(t *testing.T) *session {
	t.Helper()
	s := &session{m: m}
	s.cmd = m.entering(context.Background(), 0, "systemd-run", "--quiet", "--pipe", "--collect", "--service-type=exec", "--uid="+userName,
		"--property=PAMName=login", "--property=WorkingDirectory=~", "--setenv=XDG_SESSION_CLASS=user", "--setenv=XDG_SESSION_TYPE=tty",
		"/bin/bash", "-l")
	s.cmd.Env = []string{searched}
	var err error
	if s.typed, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.printed = bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the machine may be gone already
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	if got := s.must(t, "loginctl show-session $XDG_SESSION_ID -p Class --value; systemctl --user is-system-running --wait"); !strings.HasPrefix(got, "user\n") {
		t.Fatalf("the login has a session of class %q", got)
	}
	return s
}

// run has the shell run a line.
func (s *session) run(t *testing.T, line string) result {
	t.Helper()
	s.count++
	mark := fmt.Sprintf("lab-%d-ended", s.count)
	out, errs := home+"/.lab-out", home+"/.lab-err"
	// In a group and not a subshell: a cd or an export stays, as it does for a person.
	if _, err := fmt.Fprintf(s.typed, "{ %s\n} </dev/null >%s 2>%s; printf '\\n%s %%d\\n' $?\n", line, out, errs, mark); err != nil {
		t.Fatalf("cannot type %q: %v", line, err)
	}
	watch := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() }) // the scan below ends
	defer watch.Stop()
	for s.printed.Scan() {
		status, is := strings.CutPrefix(s.printed.Text(), mark+" ")
		if !is {
			continue
		}
		exit, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		return result{exit, s.said(t, out), s.said(t, errs)}
	}
	t.Fatalf("the session ended, or hung, in %q", line)
	return result{}
}

func (s *session) said(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(s.m.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// must runs a line that has to succeed, and gives what it prints.
func (s *session) must(t *testing.T, line string) string {
	t.Helper()
	r := s.run(t, line)
	if r.exit != 0 {
		t.Fatalf("%s: %v", line, r)
	}
	return strings.TrimSpace(r.stdout)
}

// logout ends the shell, and waits until logind knows the session no more.
func (s *session) logout(t *testing.T) {
	t.Helper()
	s.typed.Close()
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("the login shell: %v", err)
	}
	eventually(t, "no session of the user's", func() error {
		if list := s.m.must(t, "loginctl", "list-sessions", "--no-legend"); strings.Contains(list, userName) {
			return fmt.Errorf("%s", list)
		}
		return nil
	})
}
