package platform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// undoLimit bounds what is undone of an installation that failed; it is done also
// when the installation failed because its context ended.
const undoLimit = 30 * time.Second

// undoing is what takes back the steps that were done, the last one first.
type undoing []func(context.Context) error

func (u *undoing) add(step func(context.Context) error) { *u = append(*u, step) }

func (u *undoing) all(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	for _, step := range slices.Backward(*u) {
		err = errors.Join(err, step(ctx))
	}
	return err
}

func (s systemdService) install(ctx context.Context, o ServiceOptions) (report ServiceReport, err error) {
	report = ServiceReport{Kind: s.kind, Done: []string{}, Next: []string{}}
	var undo undoing
	defer func() {
		if err == nil {
			return
		}
		report.Done, report.Next = []string{}, []string{}
		if cannot := undo.all(ctx); cannot != nil {
			err = fmt.Errorf("%w; and what was done of it can't be undone: %w", err, cannot)
		}
	}()
	options, err := s.checkUser(ctx, o)
	if err != nil {
		return report, err
	}
	if o.Linger {
		if err := s.linger(ctx, &report, &undo); err != nil {
			return report, err
		}
	}
	files, err := s.files(ctx, options)
	if err != nil {
		return report, err
	}
	before, err := s.ask(ctx)
	switch _, ours := unitVersion(files.have); {
	case err != nil:
		return report, err
	case before.load == stateMasked:
		return report, fmt.Errorf("the unit is masked, so that nothing may start it; to allow it: %s", s.command("unmask", s.unit()))
	case len(files.have) > 0 && !ours:
		return report, fmt.Errorf("%s is there and wasn't written by intermission; move it away", files.own)
	case !s.user && before.user != "" && before.user != options.User:
		return report, fmt.Errorf("%s is %s's, and there can be one; uninstall it before: sudo intermission service uninstall", files.own, before.user)
	}
	changed, err := s.write(ctx, files, before, &report, &undo)
	if err != nil {
		return report, err
	}
	if err := s.enable(ctx, before, changed, &report, &undo); err != nil {
		return report, err
	}
	if s.user {
		if err := s.leaveDesktop(&report); err != nil {
			return report, err
		}
	}
	s.whatNext(&report, before, changed)
	return report, nil
}

// checkUser finds for whom the unit is, and that it is the only one.
func (s systemdService) checkUser(ctx context.Context, o ServiceOptions) (SystemdOptions, error) {
	if s.user {
		system := newSystemd(s.Service, s.host, SystemdSystem)
		if u, err := system.ask(ctx); err == nil && u.user == s.host.name && u.file == "enabled" {
			return SystemdOptions{}, fmt.Errorf("a system unit is installed for you (%s); uninstall it before: sudo intermission service uninstall", u.fragment)
		}
		return SystemdOptions{}, nil
	}
	a, err := s.host.lookupUser(ctx, o.User)
	if err != nil {
		return SystemdOptions{}, fmt.Errorf("%w; name the one whose sessions they are: --user NAME", err)
	}
	if a.uid == "0" {
		return SystemdOptions{}, errors.New("the service never runs as root; name the user whose sessions they are: --user NAME")
	}
	link := filepath.Join(a.home, ".config/systemd/user/default.target.wants", s.unit())
	if _, err := os.Lstat(link); err == nil {
		return SystemdOptions{}, fmt.Errorf("%s has a user unit already (%s); as that user: intermission service uninstall", a.name, link)
	}
	return SystemdOptions{User: a.name, Home: a.home}, nil
}

// linger has the user's manager run from boot on. It comes first: it starts a
// manager where none runs.
func (s *systemdService) linger(ctx context.Context, report *ServiceReport, undo *undoing) error {
	name := s.host.name
	if s.host.lingers(name) {
		return nil
	}
	if _, err := s.tool(ctx, systemctlLimit, "loginctl", "--no-ask-password", "enable-linger", name); err != nil {
		return fmt.Errorf("cannot switch on lingering: %w; have an administrator do it: sudo loginctl enable-linger %s", err, name)
	}
	undo.add(func(ctx context.Context) error {
		_, err := s.tool(ctx, systemctlLimit, "loginctl", "--no-ask-password", "disable-linger", name)
		return err
	})
	report.Done = append(report.Done, "Switched on lingering: it runs from boot on, and goes on after a logout.")
	if err := s.waitForManager(ctx); err != nil {
		return s.noManager(err)
	}
	return nil
}

// write puts the unit's file in order and has the manager read it.
func (s systemdService) write(ctx context.Context, f unitFiles, before unitState, report *ServiceReport, undo *undoing) (changed bool, err error) {
	if bytes.Equal(f.have, f.want) && (f.have == nil) == (f.want == nil) {
		if !before.reload && before.load == "loaded" {
			report.Done = append(report.Done, fmt.Sprintf("The unit is installed and current: %s", before.fragment))
			return false, nil
		}
		return true, s.reload(ctx)
	}
	undo.add(s.reload)
	if f.want == nil {
		if err := os.Remove(f.own); err != nil {
			return false, err
		}
		undo.add(func(context.Context) error { return writeUnit(f.own, f.have) })
		report.Done = append(report.Done, fmt.Sprintf("Removed %s: the package's own %s does the same.", f.own, f.packaged))
		return true, s.reload(ctx)
	}
	made, err := makeDirectories(filepath.Dir(f.own))
	undo.add(func(context.Context) error { return removeDirectories(made) })
	if err != nil {
		return false, err
	}
	undo.add(func(context.Context) error {
		if f.have == nil {
			return removeIfThere(f.own)
		}
		return writeUnit(f.own, f.have)
	})
	if err := writeUnit(f.own, f.want); err != nil {
		return false, err
	}
	what := "Wrote"
	if f.have != nil {
		what = "Updated"
	}
	report.Done = append(report.Done, fmt.Sprintf("%s the %s %s.", what, s.kind, f.own))
	return true, s.reload(ctx)
}

// writeUnit writes a unit's file, which others may read: it holds no secret, and
// systemd warns of one that they can't.
func writeUnit(path string, data []byte) error {
	if err := WriteFileAtomic(path, data); err != nil {
		return err
	}
	return os.Chmod(path, 0o644) //nolint:gosec // as it says
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// makeDirectories makes the directory, and says which it had to make, the lowest first.
func makeDirectories(dir string) (made []string, err error) {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		made = append(made, d)
	}
	return made, os.MkdirAll(dir, 0o755) //nolint:gosec // as systemctl makes them
}

// removeDirectories removes those that are empty.
func removeDirectories(dirs []string) error {
	for _, d := range dirs {
		_ = os.Remove(d)
	}
	return nil
}

// enable has the unit started with its target. An older definition may have been
// for another target: then the links are made anew.
func (s systemdService) enable(ctx context.Context, before unitState, changed bool, report *ServiceReport, undo *undoing) error {
	was := before.file == "enabled"
	if was && !changed {
		return nil
	}
	if s.user {
		if err := s.linkable(ctx); err != nil {
			return err
		}
	}
	act := "enable"
	if was {
		act = "reenable"
	}
	// Taken back before the file is: the links go by what stands in it. Where it was
	// enabled, they are right again with the older file.
	undo.add(func(ctx context.Context) error {
		if was {
			return nil
		}
		_, err := s.run(ctx, systemctlLimit, "disable", s.unit())
		return err
	})
	if was {
		*undo = slices.Insert(*undo, 0, func(ctx context.Context) error {
			_, err := s.run(ctx, systemctlLimit, "reenable", s.unit())
			return err
		})
	}
	if _, err := s.run(ctx, systemctlLimit, act, s.unit()); err != nil {
		return err
	}
	if !was {
		when := "when you log in"
		switch {
		case !s.user:
			when = "at boot"
		case s.host.lingers(s.host.name):
			when = "at boot, and when you log in"
		}
		report.Done = append(report.Done, "Enabled it: systemd starts the supervisor "+when+".")
	}
	return nil
}

// linkable is an error when no link can be made among the user's units: systemctl would
// then say that the unit doesn't exist.
func (s systemdService) linkable(ctx context.Context) error {
	dirs, err := s.unitPath(ctx)
	if err != nil {
		return s.noManager(err)
	}
	own, _ := s.pick(dirs)
	dir := filepath.Join(filepath.Dir(own), "default.target.wants")
	made, err := makeDirectories(dir)
	defer func() { _ = removeDirectories(made) }()
	if err == nil {
		err = unix.Access(dir, unix.W_OK)
	}
	if err != nil {
		return fmt.Errorf("cannot write in %s: %w", dir, err)
	}
	return nil
}

// leaveDesktop takes away the desktop's entry of an installation before there was systemd.
func (s systemdService) leaveDesktop(report *ServiceReport) error {
	entry := desktopLogin{s.Service, s.host}.entry()
	if on, err := entry.Enabled(); err != nil || !on {
		return err
	}
	if err := entry.Disable(); err != nil {
		return err
	}
	report.Done = append(report.Done, "Removed the older entry by which the desktop started it at login.")
	return nil
}

func (s systemdService) whatNext(report *ServiceReport, before unitState, changed bool) {
	switch {
	case before.running() && changed:
		report.Next = append(report.Next, HintRestart)
	case !before.running():
		report.Next = append(report.Next, HintStart)
	}
	if s.user && !s.host.lingers(s.host.name) {
		report.Next = append(report.Next, "It runs while you are logged in. For from boot on and after a logout: intermission service install --linger")
	}
}

// uninstall stops the unit in order, and takes away what an installation made.
func (s systemdService) uninstall(ctx context.Context) (ServiceReport, error) {
	report := ServiceReport{Kind: s.kind, Done: []string{}, Next: []string{}}
	before, err := s.ask(ctx)
	if err != nil {
		if s.user {
			err = s.noManager(err)
		}
		return report, err
	}
	o, _ := s.theirs(ctx, before)
	files, err := s.files(ctx, o)
	if err != nil {
		return report, err
	}
	if _, ours := unitVersion(files.have); len(files.have) > 0 && !ours {
		return report, fmt.Errorf("%s wasn't written by intermission; remove it yourself", files.own)
	}
	if !s.user && s.host.uid != 0 {
		return report, errors.New("a system unit is root's: sudo intermission service uninstall")
	}
	if before.running() || before.active == "activating" {
		if err := s.stop(ctx); err != nil {
			return report, err
		}
		report.Done = append(report.Done, "Stopped the supervisor and its server.")
	}
	if _, err := s.run(ctx, systemctlLimit, "disable", s.unit()); err != nil {
		return report, err
	}
	if files.have != nil {
		if err := os.Remove(files.own); err != nil {
			return report, err
		}
		report.Done = append(report.Done, fmt.Sprintf("Removed the %s %s.", s.kind, files.own))
	} else {
		report.Done = append(report.Done, fmt.Sprintf("Disabled the %s; its file %s is the package's.", s.kind, before.fragment))
	}
	if err := s.reload(ctx); err != nil {
		return report, err
	}
	_, _ = s.run(ctx, systemctlLimit, "reset-failed", s.unit()) // mostly there is nothing to forget
	if s.user && s.host.lingers(s.host.name) {
		report.Next = append(report.Next, "Lingering stays on for your other services; to switch it off: loginctl disable-linger "+s.host.name)
	}
	return report, nil
}
