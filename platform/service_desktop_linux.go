package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// desktopLogin is the service where no systemd runs the system: the desktop starts
// the supervisor at login, nobody restarts it, and it alone can stop itself in order.
type desktopLogin struct {
	Service
	host serviceHost
}

// envProgram sets variables for a program: a desktop entry has none of its own.
const envProgram = "/usr/bin/env"

func (d desktopLogin) entry() Autostart {
	argv := d.Argv
	if len(d.Env) > 0 {
		argv = []string{envProgram}
		for _, name := range slices.Sorted(maps.Keys(d.Env)) {
			argv = append(argv, name+"="+d.Env[name])
		}
		argv = append(argv, d.Argv...)
	}
	return Autostart{Name: d.Name, Title: d.Title, Comment: d.Comment, Argv: argv}
}

func (d desktopLogin) install(context.Context, ServiceOptions) (ServiceReport, error) {
	report := ServiceReport{Kind: DesktopLogin, Done: []string{}, Next: []string{}}
	user, system, err := d.entry().entries()
	if err != nil {
		return report, err
	}
	was := d.entry().starts(user) || user == nil && d.entry().starts(system)
	if err := d.entry().Enable(); err != nil {
		return report, err
	}
	file, err := d.entry().userFile()
	if err != nil {
		return report, err
	}
	done := "Wrote " + file + ": the desktop starts the supervisor when you log in. (systemd doesn't run this system.)"
	if was {
		done = "The desktop's entry is installed and current: " + file
	}
	report.Done = append(report.Done, done)
	if !d.look().Held {
		report.Next = append(report.Next, HintStart)
	}
	report.Next = append(report.Next, "It is started by a login to the desktop only, not by ssh, and by nobody if it dies; then: intermission service start")
	return report, nil
}

func (d desktopLogin) uninstall(ctx context.Context) (ServiceReport, error) {
	report := ServiceReport{Kind: DesktopLogin, Done: []string{}, Next: []string{}}
	if err := d.stop(ctx); err != nil {
		return report, err
	}
	if err := d.entry().Disable(); err != nil {
		return report, err
	}
	report.Done = append(report.Done, "The desktop doesn't start the supervisor any more.")
	return report, nil
}

// paths are those of the supervisor that the entry starts.
func (s Service) paths() (Paths, error) {
	return FindPaths(func(name string) string {
		if v, ok := s.Env[name]; ok {
			return v
		}
		return os.Getenv(name)
	})
}

// look tells who holds the lock of the one supervisor. What can't be told is nobody:
// a second supervisor refuses to start.
func (d desktopLogin) look() LockLook {
	paths, err := d.paths()
	if err != nil {
		return LockLook{}
	}
	look, _ := LookAtLock(paths.InstanceLock)
	return look
}

// logTail is the last line of the supervisor's log; "" when there is none.
func (s Service) logTail() string {
	paths, err := s.paths()
	if err != nil {
		return ""
	}
	f, err := os.Open(filepath.Join(paths.Log, app+".log"))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const most = 4096
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, 2)
	}
	b := make([]byte, most)
	n, _ := f.Read(b)
	return lastLine(string(b[:n]))
}

// start starts the supervisor as the desktop would, and waits until it listens.
func (d desktopLogin) start(ctx context.Context) error {
	if d.look().Held {
		return nil
	}
	paths, err := d.paths()
	if err != nil {
		return err
	}
	env := withoutManager(os.Environ())
	for name, value := range d.Env {
		env = append(env, name+"="+value)
	}
	child, err := Start(Spec{Argv: d.Argv, Env: env, Dir: d.host.getenv("HOME")})
	if err != nil {
		return err
	}
	ended := make(chan Exit, 1)
	go func() { ended <- child.Wait() }() // as long as it lives, or we do
	ctx, cancel := context.WithTimeoutCause(ctx, serviceStartLimit, errors.New("it doesn't listen"))
	defer cancel()
	for {
		if d.look().Held {
			if conn, err := Dial(ctx, paths.Socket); err == nil {
				return conn.Close()
			}
		}
		select {
		case exit := <-ended:
			if d.look().Held {
				return nil // another was faster
			}
			return fmt.Errorf("the supervisor ended at once (status %d%s); its log ends with: %s", exit.Code, exit.Signal, d.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%w; see %s", context.Cause(ctx), paths.Log)
		case <-time.After(50 * time.Millisecond): // nothing tells that it listens
		}
	}
}

func (d desktopLogin) stop(context.Context) error {
	if d.look().Held {
		return ErrStopByControl
	}
	return nil
}

func (d desktopLogin) status(context.Context) (ServiceStatus, error) {
	st := ServiceStatus{Kind: DesktopLogin}
	user, system, err := d.entry().entries()
	if err != nil {
		return st, err
	}
	look := d.look()
	st.Running, st.PID, st.State = look.Held, look.PID, "not running"
	if st.Running {
		st.State = "running"
	}
	keys := user
	if keys == nil {
		keys = system
	}
	st.Enabled = entryStarts(keys)
	st.Installed = st.Enabled
	st.Current = d.entry().starts(keys)
	if st.Installed {
		if st.Definition, err = d.entry().userFile(); err != nil {
			return st, err
		}
		st.Program = entryProgram(keys["Exec"])
	}
	return st, nil
}

// entryProgram is the program of an entry as we write it; one that needs quotes is
// given as it stands there.
func entryProgram(exec string) string {
	if strings.ContainsAny(exec, `"\`) {
		return exec
	}
	for word := range strings.FieldsSeq(exec) {
		if word != envProgram && !strings.Contains(word, "=") {
			return word
		}
	}
	return exec
}
